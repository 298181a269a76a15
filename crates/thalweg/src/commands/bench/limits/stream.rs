//! The raw stream: one connection of this host, 1 MB writes, two processes,
//! nothing done with the bytes.

use super::super::peer::Cores;
use crate::failure::{About, Code, Failure};
use clap::{Args, ValueEnum};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

const WRITE_BYTES: usize = 1 << 20;
/// Larger than the caches; each side has as much.
const COLD_BYTES: usize = 256 << 20;
const SUBJECT: &str = "the raw stream";

/// What the stream goes over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Socket {
    /// TCP over the loopback interface
    Tcp,
    /// A unix socket
    Unix,
}

/// Where its bytes come from and go to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Buffers {
    /// One buffer of a write's size on each side: it stays in the cache
    Hot,
    /// More than fits into the cache, on each side
    Cold,
}

impl Buffers {
    fn bytes(self) -> usize {
        match self {
            Self::Hot => WRITE_BYTES,
            Self::Cold => COLD_BYTES,
        }
    }
}

/// The other end of a raw stream; started by a benchmark.
#[derive(Debug, Args)]
pub struct ReceiverArgs {
    #[arg(value_enum)]
    socket: Socket,
    #[arg(value_enum)]
    buffers: Buffers,
}

/// Is the other end: tells its address, reads to the end, answers with one byte.
pub fn receive(args: &ReceiverArgs) -> Result<(), Failure> {
    let mut buffer = vec![1; args.buffers.bytes()];
    match args.socket {
        Socket::Tcp => {
            let listener = TcpListener::bind("127.0.0.1:0").about(SUBJECT)?;
            println!("{}", listener.local_addr().about(SUBJECT)?);
            let (mut stream, _) = listener.accept().about(SUBJECT)?;
            drain(&mut stream, &mut buffer)
        }
        Socket::Unix => {
            let directory = tempfile::tempdir().about(SUBJECT)?;
            let path = directory.path().join("raw");
            let listener = UnixListener::bind(&path).about(SUBJECT)?;
            println!("{}", path.display());
            let (mut stream, _) = listener.accept().about(SUBJECT)?;
            drain(&mut stream, &mut buffer)
        }
    }
}

fn drain(stream: &mut (impl Read + Write), buffer: &mut [u8]) -> Result<(), Failure> {
    let mut at = 0;
    loop {
        let space = (at + WRITE_BYTES).min(buffer.len());
        let read = stream.read(&mut buffer[at..space]).about(SUBJECT)?;
        if read == 0 {
            return stream.write_all(&[1]).about(SUBJECT);
        }
        at = match at + read {
            end if end < buffer.len() => end,
            _ => 0,
        };
    }
}

/// Bytes a second of a stream of about `bytes`, from the first write to the
/// receiver's answer.
pub fn measure(
    socket: Socket,
    buffers: Buffers,
    cores: &Cores,
    bytes: u64,
) -> Result<f64, Failure> {
    let program = std::env::current_exe().about(SUBJECT)?;
    let name = |value: &dyn Fn() -> Option<clap::builder::PossibleValue>| {
        let value = value().expect("no variant is skipped");
        value.get_name().to_owned()
    };
    let mut command = Command::new(program);
    command
        .args(["bench", "raw-receiver"])
        .arg(name(&|| socket.to_possible_value()))
        .arg(name(&|| buffers.to_possible_value()))
        .stdout(Stdio::piped());
    let mut receiver = cores.spawn_server(&mut command).about(SUBJECT)?;
    let mut address = String::new();
    let stdout = receiver.stdout.take().expect("its output is piped");
    BufReader::new(stdout)
        .read_line(&mut address)
        .about(SUBJECT)?;
    let address = address.trim();
    let buffer = vec![7; buffers.bytes()];
    let rate = match socket {
        Socket::Tcp => {
            let mut stream = TcpStream::connect(address).about(SUBJECT)?;
            stream.set_nodelay(true).about(SUBJECT)?;
            send(&mut stream, &buffer, bytes, |stream| {
                stream.shutdown(Shutdown::Write)
            })?
        }
        Socket::Unix => {
            let mut stream = UnixStream::connect(Path::new(address)).about(SUBJECT)?;
            send(&mut stream, &buffer, bytes, |stream| {
                stream.shutdown(Shutdown::Write)
            })?
        }
    };
    match receiver.wait().about(SUBJECT)?.success() {
        true => Ok(rate),
        false => Err(Failure::new(Code::Failure, SUBJECT, "its receiver failed")),
    }
}

fn send<S: Read + Write>(
    stream: &mut S,
    buffer: &[u8],
    bytes: u64,
    finish: impl FnOnce(&S) -> std::io::Result<()>,
) -> Result<f64, Failure> {
    let writes = bytes.div_ceil(WRITE_BYTES as u64);
    let mut pieces = buffer.chunks(WRITE_BYTES).cycle();
    let began = Instant::now();
    for _ in 0..writes {
        let piece = pieces.next().expect("the buffer is not empty");
        stream.write_all(piece).about(SUBJECT)?;
    }
    finish(stream).about(SUBJECT)?;
    let mut answer = [0];
    stream.read_exact(&mut answer).about(SUBJECT)?;
    let elapsed = began.elapsed().as_secs_f64();
    Ok((writes * WRITE_BYTES as u64) as f64 / elapsed)
}
