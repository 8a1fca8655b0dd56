//! `phonograph view` while a test runs.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::phonograph;

/// A running `view`, ended when the test is.
pub struct View {
    process: Child,
    pub url: String,
}

impl View {
    /// Starts it and waits until it says where it is.
    pub fn of(files: &[PathBuf]) -> View {
        let mut process =
            phonograph().arg("view").args(files).stdout(Stdio::piped()).spawn().unwrap();
        let mut url = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut url).unwrap();
        View { process, url: url.trim_end().to_owned() }
    }

    /// Ctrl-C ends it.
    pub fn interrupt(&mut self) {
        let id = self.process.id().to_string();
        assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
        assert!(self.process.wait().unwrap().success());
    }

    /// The first line of the answer to a request.
    pub fn ask(&self, path: &str, host: &str) -> String {
        let address = self.url.strip_prefix("http://").unwrap().trim_end_matches('/');
        let mut stream = TcpStream::connect(address).unwrap();
        let host = host.replace("HERE", address);
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.lines().next().unwrap_or_default().to_owned()
    }
}

impl Drop for View {
    fn drop(&mut self) {
        if self.process.kill().is_ok() && !std::thread::panicking() {
            self.process.wait().unwrap();
        }
    }
}
