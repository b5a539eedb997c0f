//! `ferromq-namesrv`: the name server as a program.

#![forbid(unsafe_code)]

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, anyhow};
use ferromq_daemon::logging::{self, Format};
use ferromq_daemon::{Action, Options, Program, shutdown};
use ferromq_namesrv::{NameServer, NamesrvSettings};
use ferromq_remoting::TlsSettings;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

const PROGRAM: Program = Program {
    name: "ferromq-namesrv",
    about: "the name server of FerroMQ, which tells clients where topics are",
    version: env!("CARGO_PKG_VERSION"),
    flags: &[],
};

fn main() -> ExitCode {
    match start() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}: {error:#}", PROGRAM.name);
            ExitCode::FAILURE
        }
    }
}

fn start() -> anyhow::Result<()> {
    let options = match Options::parse(&PROGRAM, std::env::args().skip(1))? {
        Action::Run(options) => options,
        Action::Print(text) => {
            println!("{text}");
            return Ok(());
        }
    };
    let mut settings = NamesrvSettings::default();
    if let Some(file) = &options.config {
        let file: &Path = file;
        settings.config_store_path = file.to_string_lossy().into_owned();
    }
    // Where Java's programs look for name servers; here, those of the other environment.
    if let Some(list) = options.default_namesrv(std::env::var("NAMESRV_ADDR").ok()) {
        settings.product_env_namesrv_addr = list;
    }
    for (define, place) in [
        ("rocketmq.namesrv.domain", &mut settings.rmq_address_server_domain),
        (
            "rocketmq.namesrv.domain.subgroup",
            &mut settings.rmq_address_server_sub_group,
        ),
    ] {
        if let Some(value) = options.define(define) {
            value.clone_into(place);
        }
    }
    let notes = settings
        .apply(&options.load_config()?)
        .context("impossible settings")?;
    let tls = TlsSettings::from_pairs(options.load_tls()?.iter()).context("impossible settings of TLS")?;
    if options.print_all {
        print!("{}", settings.to_properties().to_plain_text());
        return Ok(());
    }
    if options.print_important {
        print!("{}", settings.important_properties().to_plain_text());
        return Ok(());
    }
    let format = Format::from_name(&settings.log_format).ok_or_else(|| {
        anyhow!(
            "logFormat={} is not possible: it must be text or json",
            settings.log_format
        )
    })?;
    let log = logging::init(format, &settings.log_level)?;
    notes.log();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_name("namesrv")
        .build()
        .context("cannot start the runtime")?;
    runtime.block_on(serve(settings, log, tls))
}

async fn serve(settings: NamesrvSettings, log: logging::Handle, tls: TlsSettings) -> anyhow::Result<()> {
    let (stop, ended, tasks) = (
        CancellationToken::new(),
        CancellationToken::new(),
        TaskTracker::new(),
    );
    shutdown::on_signals(&tasks, stop.clone(), ended.clone()).context("cannot listen for signals")?;
    let running = NameServer::start_with(settings, Some(log), tls).await?;
    tracing::info!(addr = %running.local_addr(), http = ?running.http_addr(), "the name server is up");
    println!("The Name Server boot success. serializeType=JSON");
    stop.cancelled().await;
    running.shutdown().await;
    ended.cancel();
    tasks.close();
    tasks.wait().await;
    tracing::info!("the name server has stopped");
    Ok(())
}
