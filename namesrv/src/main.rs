//! The FerroMQ name server.

fn main() {}
