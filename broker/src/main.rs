//! The FerroMQ broker.

#![forbid(unsafe_code)]

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Context as _;
use ferromq_broker::{Broker, BrokerSettings, StartOptions};
use ferromq_daemon::logging::{self, Format, Handle};
use ferromq_daemon::{Action, Flag, Options, Program, shutdown};
use ferromq_namesrv::{NameServer, NamesrvSettings};
use ferromq_remoting::TlsSettings;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

const PROGRAM: Program = Program {
    name: "ferromq-broker",
    about: "stores messages and hands them to consumers, speaking RocketMQ 4.9's protocol",
    version: env!("CARGO_PKG_VERSION"),
    flags: &[Flag {
        name: "with-namesrv",
        help: "run a name server in this process too, on port 9876 or -Dnamesrv.listenPort",
    }],
};

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("ferromq-broker: {error:#}");
            // What mqbroker's exit status -3 comes out as.
            ExitCode::from(253)
        }
    }
}

/// Returns whether the stop was clean.
fn run() -> anyhow::Result<bool> {
    let options = match Options::parse(&PROGRAM, std::env::args().skip(1))? {
        Action::Run(options) => options,
        Action::Print(text) => {
            print(&text)?;
            return Ok(true);
        }
    };
    let tls = TlsSettings::from_pairs(options.load_tls()?.iter()).context("impossible settings of TLS")?;
    let (settings, notes) = BrokerSettings::load(&options, std::env::var("NAMESRV_ADDR").ok())?;
    if options.print_all {
        print(&settings.to_properties().to_plain_text())?;
        return Ok(true);
    }
    if options.print_important {
        print(&settings.important_properties().to_plain_text())?;
        return Ok(true);
    }
    let format = Format::from_name(&settings.log_format).unwrap_or_default();
    let log = logging::init(format, &settings.log_level)?;
    notes.log();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_name("broker-io")
        .build()
        .context("start the runtime")?;
    let clean = runtime.block_on(serve(&options, settings, log, tls));
    // A start that was given up may still be reading the log; nothing has to wait for that.
    runtime.shutdown_background();
    clean
}

/// Runs until a signal, or until a part that the broker needs has ended. Returns whether the stop was clean.
async fn serve(
    options: &Options,
    mut settings: BrokerSettings,
    log: Handle,
    tls: TlsSettings,
) -> anyhow::Result<bool> {
    let (stop, ended, tasks) = (
        CancellationToken::new(),
        CancellationToken::new(),
        TaskTracker::new(),
    );
    shutdown::on_signals(&tasks, stop.clone(), ended.clone()).context("listen for signals")?;
    let name_server = if options.flag("with-namesrv") {
        let server = start_name_server(options, &settings, tls.clone())
            .await
            .context("start the name server")?;
        if settings.namesrv_addr.is_empty() {
            settings.namesrv_addr = format!("127.0.0.1:{}", server.local_addr().port());
        }
        announce("The Name Server boot success. serializeType=JSON");
        Some(server)
    } else {
        None
    };
    let names = settings.namesrv_addr.clone();
    let clean = loop {
        let running = tokio::select! {
            running = Broker::start_with(settings, options_of(&log, &tls)) => running?,
            () = stop.cancelled() => {
                tracing::warn!("told to stop while starting; what was recovered so far is recovered again at the next start");
                return Ok(false);
            }
        };
        announce(&running.start_line());
        let (failed, again) = tokio::select! {
            () = stop.cancelled() => (false, false),
            () = running.failed() => (true, false),
            () = running.wants_restart() => (false, true),
        };
        if again {
            tracing::info!(
                "starting anew, without leaving the process, to copy the master's log from its beginning"
            );
        }
        let clean = running.shutdown().await && !failed;
        if !again {
            break clean;
        }
        // With what was changed at run time.
        settings = BrokerSettings::load(options, std::env::var("NAMESRV_ADDR").ok())?.0;
        settings.namesrv_addr.clone_from(&names);
    };
    if let Some(server) = name_server {
        server.shutdown().await;
    }
    ended.cancel();
    tasks.close();
    tasks.wait().await;
    Ok(clean)
}

fn options_of(log: &Handle, tls: &TlsSettings) -> StartOptions {
    StartOptions {
        log: Some(log.clone()),
        tls: tls.clone(),
        ..StartOptions::default()
    }
}

/// Prints a line that scripts wait for. Nobody may be reading: that is no reason to stop.
fn announce(line: &str) {
    if let Err(error) = print(line) {
        tracing::warn!(%error, line, "nobody reads standard output");
    }
}

/// A name server for this process, which keeps its few files in the broker's store.
async fn start_name_server(
    options: &Options,
    settings: &BrokerSettings,
    tls: TlsSettings,
) -> anyhow::Result<ferromq_namesrv::Running> {
    let mut own = NamesrvSettings {
        bind_address: settings.bind()?.to_string(),
        connection_buffer_bytes: settings.connection_buffer_bytes,
        ..NamesrvSettings::default()
    };
    if let Some(port) = options.define("namesrv.listenPort") {
        own.set("listenPort", port).context("in -Dnamesrv.listenPort")?;
    }
    let home = settings.root().join("namesrv");
    own.kv_config_path = home.join("kvConfig.json").display().to_string();
    own.config_store_path = home.join("namesrv.properties").display().to_string();
    Ok(NameServer::start_with(own, None, tls).await?)
}

/// Writes to standard output, which logs leave alone.
fn print(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.trim_end().as_bytes())
        .and_then(|()| out.write_all(b"\n"))
        .and_then(|()| out.flush())
        .context("write to standard output")
}
