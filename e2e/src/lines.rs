//! Another process that is talked to in lines.

use crate::cluster::{Running, check_interrupted};
use std::{
    io::{BufRead, BufReader, Write},
    process::{ChildStdin, Command, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    thread,
    time::{Duration, Instant},
};

pub struct Lines {
    to: ChildStdin,
    from: Receiver<String>,
    pub running: Running,
}

impl Lines {
    pub fn start(command: &mut Command) -> Self {
        let mut running = Running::start(command.stdin(Stdio::piped()).stdout(Stdio::piped())).expect("a program can be started");
        let child = running.child();
        let to = child.stdin.take().expect("it is piped");
        let lines = BufReader::new(child.stdout.take().expect("it is piped"));
        let (tell, from) = channel();
        thread::spawn(move || {
            for line in lines.lines().map_while(Result::ok) {
                if tell.send(line).is_err() {
                    return;
                }
            }
        });
        Self { to, from, running }
    }

    /// This program itself, with other arguments.
    pub fn ourselves(args: &[String]) -> Command {
        let mut command = Command::new(std::env::current_exe().expect("this program has a path"));
        // These are asked of every use of it.
        command.args(["--servers", "-", "--peer", "-"]).args(args);
        command
    }

    pub fn say(&mut self, line: &str) {
        writeln!(self.to, "{line}").expect("the other process listens");
    }

    /// What follows this word in the next line that begins with it.
    pub fn hear(&self, word: &str, limit: Duration) -> Option<String> {
        let end = Instant::now() + limit;
        loop {
            check_interrupted();
            let left = end.saturating_duration_since(Instant::now());
            match self.from.recv_timeout(left.min(Duration::from_millis(200))) {
                Ok(line) => match line.split_once(' ') {
                    Some((first, rest)) if first == word => return Some(rest.to_owned()),
                    _ => {}
                },
                Err(RecvTimeoutError::Timeout) if !left.is_zero() => {}
                Err(_) => return None,
            }
        }
    }
}
