//! Frames that wait to be written, as few large pieces.
//!
//! Heads and small bodies are copied one behind the other into `tail`; a large body is kept as the `Bytes` it
//! came as, so that a pulled message goes from the mapped log to the socket without a copy. Invariant:
//! `bytes` = bytes in `ready` + bytes in `tail`.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use ferromq_protocol::command::Command;
use ferromq_protocol::frame;
use tokio::io::AsyncWrite;

/// Bodies shorter than this are copied: cheaper than one more slice in the vectored write.
const COPY_BELOW: usize = 2048;
/// Slices per write; the kernel takes up to 1024.
const SLICES: usize = 64;
/// What an empty buffer may keep allocated.
const KEEP: usize = 64 * 1024;

#[derive(Debug, Default)]
pub(crate) struct OutBuf {
    ready: VecDeque<Bytes>,
    tail: BytesMut,
    bytes: usize,
}

impl OutBuf {
    pub(crate) fn len(&self) -> usize {
        self.bytes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Appends one frame; `chunks` replace the command's own body unless empty.
    pub(crate) fn push(&mut self, head: &Command, chunks: Vec<Bytes>) {
        let before = self.tail.len();
        if chunks.is_empty() {
            frame::encode_head(head, head.body.len(), &mut self.tail);
            self.bytes += self.tail.len() - before;
            self.push_piece(head.body.clone());
        } else {
            let body = chunks.iter().map(Bytes::len).sum();
            frame::encode_head(head, body, &mut self.tail);
            self.bytes += self.tail.len() - before;
            for chunk in chunks {
                self.push_piece(chunk);
            }
        }
    }

    fn push_piece(&mut self, piece: Bytes) {
        self.bytes += piece.len();
        if piece.len() < COPY_BELOW {
            self.tail.extend_from_slice(&piece);
        } else {
            self.seal();
            self.ready.push_back(piece);
        }
    }

    /// Moves all of `other` behind what is here.
    pub(crate) fn append(&mut self, other: &mut Self) {
        if self.is_empty() {
            std::mem::swap(self, other);
            return;
        }
        self.seal();
        other.seal();
        self.ready.append(&mut other.ready);
        self.bytes += other.bytes;
        other.bytes = 0;
    }

    fn seal(&mut self) {
        if !self.tail.is_empty() {
            self.ready.push_back(self.tail.split().freeze());
        }
    }

    /// Gives memory back when nothing waits.
    pub(crate) fn shrink(&mut self) {
        if self.is_empty() {
            self.tail = BytesMut::new();
            self.ready.shrink_to(4);
        }
    }

    /// One vectored write of as much as waits. `Ready(Ok(0))` only when nothing waits.
    pub(crate) fn poll_write<S: AsyncWrite + Unpin>(
        &mut self,
        stream: &mut S,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        self.seal();
        if self.ready.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let n = {
            let mut slices = [IoSlice::new(&[]); SLICES];
            let mut used = 0;
            for (slot, piece) in slices.iter_mut().zip(&self.ready) {
                *slot = IoSlice::new(piece);
                used += 1;
            }
            if used > 1 && stream.is_write_vectored() {
                ready!(Pin::new(stream).poll_write_vectored(cx, &slices[..used]))?
            } else {
                ready!(Pin::new(stream).poll_write(cx, &self.ready[0]))?
            }
        };
        if n == 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        self.advance(n);
        Poll::Ready(Ok(n))
    }

    fn advance(&mut self, mut n: usize) {
        self.bytes -= n;
        while n > 0 {
            let Some(first) = self.ready.front_mut() else {
                break;
            };
            if first.len() > n {
                first.advance(n);
                break;
            }
            n -= first.len();
            self.ready.pop_front();
        }
        if self.is_empty() && self.tail.capacity() > KEEP {
            self.tail = BytesMut::new();
        }
    }
}
