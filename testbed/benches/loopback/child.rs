//! One end of a variant as a process of its own.
//!
//! An end says `ready` and what its peer needs to know. Then it answers each line on its standard input with the processor
//! time that it has used and what else it has to tell, and exits when that input ends.

use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail};
use cpu_time::ProcessTime;
use tandem_proto::congestion::Algorithm;

use crate::{End, Variant};

/// The parent's side.
pub(crate) struct Child {
    process: std::process::Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    ready: String,
}

impl Child {
    /// Starts an end and waits until it is ready.
    pub(crate) fn start(end: End, variant: Variant, congestion: Algorithm, peer: &str) -> Result<Self> {
        let name = match end {
            End::Client => "client",
            End::Relay => "relay",
        };
        let program = std::env::current_exe().context("this program's own path")?;
        let mut process = Command::new(program)
            .args(["--end", name, "--variant", variant.name(), "--congestion", congestion.name(), "--peer", peer])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("starting an end")?;
        let input = process.stdin.take();
        let output = BufReader::new(process.stdout.take().expect("standard output is piped"));
        let mut child = Self { process, input, output, ready: String::new() };
        let line = child.line()?;
        let Some(ready) = line.strip_prefix("ready ") else { bail!("the {name} did not start: {line:?}") };
        child.ready = ready.to_owned();
        Ok(child)
    }

    /// What the end said when it was ready.
    pub(crate) fn ready(&self) -> &str {
        &self.ready
    }

    /// The processor time, user and system, that the end has used so far, and what else it tells.
    pub(crate) fn processor_seconds(&mut self) -> Result<(f64, String)> {
        self.input.as_mut().expect("open until dropped").write_all(b"\n").context("asking an end")?;
        let line = self.line()?;
        let (seconds, rest) = line.split_once(' ').unwrap_or((&line, ""));
        Ok((seconds.parse().context("an end's processor time")?, rest.to_owned()))
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.output.read_line(&mut line).context("listening to an end")?;
        Ok(line.trim_end().to_owned())
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.input = None;
        // It cannot be waited for twice.
        let _ = self.process.wait();
    }
}

/// The end's side: says that it is ready, and answers until its input ends.
pub(crate) async fn answer(ready: String, tell: impl Fn() -> String + Send + 'static) -> Result<()> {
    tokio::task::spawn_blocking(move || {
        println!("ready {ready}");
        for line in std::io::stdin().lines() {
            line.context("listening to the parent")?;
            println!("{} {}", ProcessTime::now().as_duration().as_secs_f64(), tell());
        }
        // Whatever still runs has nobody to run for.
        std::process::exit(0)
    })
    .await
    .context("answering the parent")?
}
