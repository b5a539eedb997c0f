//! Deleting what is old, and refusing appends before the disk is full.
//!
//! [`decide`](plan::decide) says from plain values which files go and why; [`worker`] looks, asks and does.

pub(crate) mod plan;
mod worker;

pub(crate) use worker::DiskState;
