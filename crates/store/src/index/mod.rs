//! The index by key: which records carry a key, newest first.
//!
//! ```text
//! index/<yyyyMMddHHmmssSSS>
//! +0   i64 begin store time   +8  i64 end store time
//! +16  i64 begin log offset   +24 i64 end log offset
//! +32  i32 used slots         +36 i32 next entry number, from 1
//! +40                 slots: i32 newest entry of the slot, 0 = none
//! +40+4·slots         entries from number 0 (never used), 20 bytes each:
//!                     i32 key hash · i64 log offset · i32 seconds since the begin time · i32 older entry of the slot
//! ```
//!
//! Only the newest file is mapped, and only where its blocks are allocated; queries read with system calls.

mod file;
mod key_index;

pub(crate) use file::{read_entries, read_header};
pub(crate) use key_index::{KeyIndex, hashes_to};
