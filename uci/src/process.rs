//! An engine's process: lines in, bounded lines out, and the death of its whole group.

use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    process::{Child, ChildStdin, ChildStdout, Command},
};

use crate::{EngineConfig, UciError};

/// Longest line in bytes; a Stockfish line with a long variation has a few hundred.
const LONGEST: u64 = 64 * 1024;

/// A running engine. Its group is killed when it is dropped.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    group: Option<Pid>,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    /// The beginning of a line whose end has not come yet.
    unfinished: Vec<u8>,
}

impl Process {
    pub(crate) fn spawn(config: &EngineConfig) -> Result<Self, UciError> {
        let problem = |problem: String| UciError::Spawn { program: config.program.display().to_string(), problem };
        let mut child = Command::new(&config.program)
            .args(&config.args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            // A group of its own: what the engine starts dies with it, and Ctrl-C in a terminal does not reach it.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| problem(error.to_string()))?;
        let group = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(problem("its pipes cannot be had".to_owned()));
        };
        Ok(Process { child, group, input, output: BufReader::new(output), unfinished: Vec::new() })
    }

    /// Writes a command.
    pub(crate) async fn say(&mut self, command: &str) -> Result<(), UciError> {
        tracing::trace!(command, "to the engine");
        let line = format!("{command}\n");
        self.input.write_all(line.as_bytes()).await.map_err(|_| UciError::Crashed)
    }

    /// The next line. May be cancelled; what was read of a line is kept.
    pub(crate) async fn line(&mut self) -> Result<String, UciError> {
        let room = LONGEST.saturating_sub(self.unfinished.len() as u64);
        let read = (&mut self.output).take(room).read_until(b'\n', &mut self.unfinished).await;
        match read {
            Ok(_) if self.unfinished.ends_with(b"\n") => {
                let line = String::from_utf8_lossy(&std::mem::take(&mut self.unfinished)).trim().to_owned();
                tracing::trace!(line, "from the engine");
                Ok(line)
            }
            Ok(_) if self.unfinished.len() as u64 >= LONGEST => Err(UciError::Flood),
            Ok(_) | Err(_) => Err(UciError::Crashed),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(group) = self.group {
            // Fails when all of the group have ended already.
            let _ = kill_process_group(group, Signal::KILL);
        }
        // Also when it is in no group of its own, which cannot be told; fails when it has ended.
        let _ = self.child.start_kill();
    }
}
