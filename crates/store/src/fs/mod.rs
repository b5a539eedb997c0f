//! Files as the store needs them: mapped segments, blocks allocated ahead, the lock, durable directories.

pub(crate) mod bus_error;
pub(crate) mod crash_safe;
pub(crate) mod damage;
pub(crate) mod lock;
pub(crate) mod log_dirs;
pub(crate) mod mmap;
pub(crate) mod prealloc;
pub(crate) mod segment;
pub(crate) mod segment_list;
