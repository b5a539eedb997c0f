//! What a connection is carried by, and how much memory that takes of its own.
//!
//! A plain socket holds nothing outside the kernel. A TLS session holds its keys, one record that is coming in, and
//! what was encrypted but not yet taken by the socket, up to rustls' limit of 64 KiB. rustls does not tell how much that is,
//! so both ends of the session are counted: what was given to it, and what it gave to the socket. Records add about 0.2 %,
//! which is left out. Whenever the session is flushed it holds nothing to be sent, and counting begins anew.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::{client, server};

/// What a session holds when nothing waits to be sent: keys and state, buffers of a record coming in. Below the reserve
/// that each connection has, so a session that does nothing takes nothing from the others.
pub(crate) const SESSION: usize = 24 * 1024;

/// A stream under a connection.
pub(crate) trait Transport: AsyncRead + AsyncWrite + Unpin + Send {
    /// Bytes that it holds itself.
    fn held(&self) -> usize;
}

impl Transport for TcpStream {
    fn held(&self) -> usize {
        0
    }
}

impl<T: Transport + ?Sized> Transport for Box<T> {
    fn held(&self) -> usize {
        (**self).held()
    }
}

/// Counts what a socket takes.
#[derive(Debug)]
pub(crate) struct Metered<S> {
    socket: S,
    written: u64,
}

impl<S> Metered<S> {
    pub(crate) fn new(socket: S) -> Self {
        Self { socket, written: 0 }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Metered<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Metered<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let n = ready!(Pin::new(&mut self.socket).poll_write(cx, buf))?;
        self.written += n as u64;
        Poll::Ready(Ok(n))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let n = ready!(Pin::new(&mut self.socket).poll_write_vectored(cx, bufs))?;
        self.written += n as u64;
        Poll::Ready(Ok(n))
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}

/// Either side's TLS stream over a [`Metered`] socket.
pub(crate) trait Session: AsyncRead + AsyncWrite + Unpin + Send {
    /// Bytes that its socket took so far.
    fn socket_took(&self) -> u64;
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Session for server::TlsStream<Metered<S>> {
    fn socket_took(&self) -> u64 {
        self.get_ref().0.written
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Session for client::TlsStream<Metered<S>> {
    fn socket_took(&self) -> u64 {
        self.get_ref().0.written
    }
}

/// A TLS stream that knows how much it holds.
#[derive(Debug)]
pub(crate) struct Encrypted<T> {
    session: T,
    /// Given to the session since it was last flushed.
    given: u64,
    /// What the socket had taken then.
    took: u64,
}

impl<T: Session> Encrypted<T> {
    pub(crate) fn new(session: T) -> Self {
        let took = session.socket_took();
        Self {
            session,
            given: 0,
            took,
        }
    }
}

impl<T: Session> Transport for Encrypted<T> {
    fn held(&self) -> usize {
        let gone = self.session.socket_took() - self.took;
        SESSION + usize::try_from(self.given.saturating_sub(gone)).unwrap_or(usize::MAX)
    }
}

impl<T: Session> AsyncRead for Encrypted<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.session).poll_read(cx, buf)
    }
}

impl<T: Session> AsyncWrite for Encrypted<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let n = ready!(Pin::new(&mut self.session).poll_write(cx, buf))?;
        self.given += n as u64;
        Poll::Ready(Ok(n))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let n = ready!(Pin::new(&mut self.session).poll_write_vectored(cx, bufs))?;
        self.given += n as u64;
        Poll::Ready(Ok(n))
    }

    fn is_write_vectored(&self) -> bool {
        self.session.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.session).poll_flush(cx))?;
        self.given = 0;
        self.took = self.session.socket_took();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.session).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustls::pki_types::ServerName;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
    use tokio_rustls::{TlsAcceptor, TlsConnector};

    use super::super::{ClientTlsSettings, ServerTlsSettings, load};
    use super::*;

    #[tokio::test]
    async fn what_the_socket_does_not_take_is_held_and_given_back() {
        let settings = ServerTlsSettings::default();
        let seen = load::Seen::read(&settings.files());
        let own = load::server_config(&settings, &seen)
            .unwrap()
            .expect("self-signed");
        let settings = ClientTlsSettings::default();
        let seen = load::Seen::read(&settings.files());
        let theirs = load::client_config(&settings, &seen).unwrap().unwrap();
        // A pipe that holds 1 KiB stands for a socket whose peer does not read.
        let (near, far) = duplex(1024);
        let name = ServerName::try_from("any").unwrap();
        let (near, far) = tokio::join!(
            TlsAcceptor::from(Arc::new(own)).accept(Metered::new(near)),
            TlsConnector::from(Arc::new(theirs)).connect(name, far),
        );
        let (mut near, mut far) = (Encrypted::new(near.unwrap()), far.unwrap());
        assert_eq!(near.held(), SESSION);
        let mut given = 0;
        let piece = [7; 4096];
        while given < 1 << 20 {
            match futures::poll!(std::pin::pin!(near.write(&piece))) {
                Poll::Ready(n) => given += n.unwrap(),
                Poll::Pending => break,
            }
        }
        assert!(given < 1 << 20, "a session without limit");
        let held = near.held() - SESSION;
        assert!(held + 2048 >= given && held <= given, "{held} of {given}");
        assert!(held > 32 * 1024, "{held}");
        let reader = async {
            let mut all = vec![0; given];
            far.read_exact(&mut all).await.unwrap();
        };
        let (flushed, ()) = tokio::join!(near.flush(), reader);
        flushed.unwrap();
        assert_eq!(near.held(), SESSION);
    }
}
