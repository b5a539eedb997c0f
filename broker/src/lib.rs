//! The FerroMQ broker.
