//! What a process has used, read from `/proc`.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::Context as _;

/// CPU time of all threads that it ever had, user and system, in nanoseconds. The kernel tells it in ticks of 10 ms.
pub(crate) fn cpu_nanos(pid: u32) -> anyhow::Result<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).context("read the CPU time")?;
    // The name may hold blanks; what follows its closing bracket does not. utime and stime are fields 14 and 15.
    let rest = stat.rsplit_once(')').context("a process has a name")?.1;
    let mut fields = rest.split_whitespace().skip(11);
    let mut ticks = || -> anyhow::Result<u64> { Ok(fields.next().context("a field is missing")?.parse()?) };
    Ok((ticks()? + ticks()?) * 10_000_000)
}

/// Anonymous memory and all resident memory, in KiB. Pages of the mapped log count only in the second.
pub(crate) fn memory_kib(pid: u32) -> anyhow::Result<(u64, u64)> {
    let text =
        std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).context("read the memory in use")?;
    let field = |name: &str| -> anyhow::Result<u64> {
        let line = text
            .lines()
            .find(|line| line.starts_with(name))
            .with_context(|| format!("{name} is missing"))?;
        let value = line.split_whitespace().nth(1).context("a value")?;
        Ok(value.parse()?)
    };
    Ok((field("Anonymous:")?, field("Rss:")?))
}

/// Gives a process and all its threads one core, so that it does not share with the load.
pub(crate) fn pin(pid: u32, core: u32) -> anyhow::Result<()> {
    let status = Command::new("taskset")
        .args(["-acp", &core.to_string(), &pid.to_string()])
        .stdout(Stdio::null())
        .status()
        .context("start taskset")?;
    anyhow::ensure!(status.success(), "taskset ended with {status}");
    Ok(())
}

/// System calls of a process while `work` runs, counted by strace.
pub(crate) fn system_calls(
    pid: u32,
    report: &Path,
    work: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<u64> {
    let mut tracer = crate::support::process::Process::start(
        "strace",
        report.parent().context("the report has a directory")?,
        Command::new("strace")
            .args(["-c", "-f", "-p", &pid.to_string(), "-o"])
            .arg(report),
    )?;
    crate::support::wait_until("strace to attach", || Ok(tracer.errors().contains("attached")))?;
    work()?;
    tracer.signal(rustix::process::Signal::INT)?;
    tracer.wait()?;
    let text = std::fs::read_to_string(report).context("read what strace counted")?;
    let total = text
        .lines()
        .find(|line| line.trim_end().ends_with("total"))
        .with_context(|| format!("strace told no total:\n{text}"))?;
    // "100.00    1.234567          12     98765       123 total"; the column of errors can be empty.
    Ok(total
        .split_whitespace()
        .nth(3)
        .context("strace told no number of calls")?
        .parse()?)
}
