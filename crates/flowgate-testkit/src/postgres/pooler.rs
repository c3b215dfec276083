//! A pooler of transactions before PostgreSQL, the smallest that is one: a single connection, which whoever
//! asks next is given until its transaction is over.
//!
//! Owns nothing of what is said: it reads where a message ends, and when the server has nothing open any
//! more.

use std::{
    io::{self, Read, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex, PoisonError},
    thread,
};

/// `SSLRequest`, which is answered with no.
const TLS: [u8; 4] = 80_877_103_u32.to_be_bytes();

/// The one connection, and what the server said when it began.
type Server = Arc<Mutex<Option<(TcpStream, Vec<u8>)>>>;

/// Listens before the server at this port, for as long as the process lives, and gives its own.
pub fn pool_transactions(port: u16) -> io::Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let own = listener.local_addr()?.port();
    let server = Server::default();
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let server = Arc::clone(&server);
            thread::spawn(move || serve(client, port, &server));
        }
    });
    Ok(own)
}

fn serve(mut client: TcpStream, port: u16, server: &Server) -> io::Result<()> {
    let mut begin = packet(&mut client)?;
    if begin[4..] == TLS {
        client.write_all(b"N")?;
        begin = packet(&mut client)?;
    }
    let mut open = server.lock().unwrap_or_else(PoisonError::into_inner);
    if open.is_none() {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.write_all(&begin)?;
        let mut said = Vec::new();
        answer(&mut stream, &mut said)?;
        *open = Some((stream, said));
    }
    if let Some((_, said)) = &*open {
        client.write_all(said)?;
    }
    drop(open);
    loop {
        let (mut tag, mut message) = message(&mut client)?;
        let mut open = server.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((stream, _)) = open.as_mut() else { return Ok(()) };
        loop {
            if tag == b'X' {
                return Ok(());
            }
            stream.write_all(&message)?;
            if matches!(tag, b'Q' | b'S') && answer(stream, &mut client)? == b'I' {
                break;
            }
            (tag, message) = self::message(&mut client)?;
        }
    }
}

/// Hands on what the server says until it is ready for more; gives whether a transaction is open then.
fn answer(server: &mut TcpStream, to: &mut impl Write) -> io::Result<u8> {
    loop {
        let (tag, said) = message(server)?;
        to.write_all(&said)?;
        if tag == b'Z' {
            return Ok(said[5]);
        }
    }
}

/// One message: its tag, and all of it.
fn message(from: &mut TcpStream) -> io::Result<(u8, Vec<u8>)> {
    let mut tag = [0];
    from.read_exact(&mut tag)?;
    let rest = packet(from)?;
    Ok((tag[0], [&tag[..], &rest].concat()))
}

/// Its length, and what is as long.
fn packet(from: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let mut rest = vec![0; (u32::from_be_bytes(length) as usize).saturating_sub(4)];
    from.read_exact(&mut rest)?;
    Ok([&length[..], &rest].concat())
}
