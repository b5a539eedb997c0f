//! The FerroMQ name server.
