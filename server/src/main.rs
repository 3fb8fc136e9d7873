//! `zeitnot`: serves predictions, prints its options, checks its models.

use std::{process::ExitCode, time::Duration};

use anyhow::Result;
use zeitnot_server::{
    cli::{Cli, Command},
    config::Config,
    cost::CostModel,
    model_files::{self, EnsembleFile, Found},
    models,
    rerank::kit,
    selfcheck,
    server::{self, Listeners, Signals},
    shutdown, telemetry,
};

/// glibc's allocator mixes what lives long, such as cached predictions, with what lives for a request, and then cannot
/// give pages back: under load with reloads the server grew by a fifth in a minute. This one keeps sizes apart.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// What sysexits.h calls EX_CONFIG.
const WRONG_CONFIGURATION: u8 = 78;

/// How long what still runs may take when all requests have been answered.
const END_LIMIT: Duration = Duration::from_secs(5);

fn main() -> ExitCode {
    // ONNX Runtime keeps usage data on disk, to be sent, unless told otherwise.
    #[allow(unsafe_code)] // Sound: no other thread is there yet that could read the environment.
    unsafe {
        std::env::set_var("ORT_DISABLE_TELEMETRY", "1");
    }
    let cli = match Cli::read(std::env::args_os()) {
        Ok(cli) => cli,
        Err(error) => return wrong(&error),
    };
    let outcome = match cli.command {
        Command::Config(configured) => configured.options.to_toml().map(|text| print!("{text}")),
        Command::Check(configured) => match configured.options.check_files() {
            Ok(()) => check(&configured.options),
            Err(error) => return wrong(&error),
        },
        Command::Serve(configured) => match configured.options.check_files() {
            Ok(()) => serve(configured.options),
            Err(error) => return wrong(&error),
        },
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("zeitnot: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Says what is wrong with the configuration; help and version are asked for in the same way.
fn wrong(error: &anyhow::Error) -> ExitCode {
    match error.downcast_ref::<clap::Error>() {
        Some(usage) => {
            let _ = usage.print(); // There is nowhere else to say it.
            ExitCode::from(if usage.use_stderr() { WRONG_CONFIGURATION } else { 0 })
        }
        None => {
            eprintln!("zeitnot: {error:#}");
            ExitCode::from(WRONG_CONFIGURATION)
        }
    }
}

fn serve(config: Config) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let served = runtime.block_on(async {
        let _telemetry = telemetry::start(&config)?;
        let listeners = Listeners::bind(&config).await?;
        tracing::info!(grpc = %listeners.grpc_address()?, admin = %listeners.admin_address()?, "listening");
        let signals = Signals { shutdown: shutdown::requested()?, hangups: shutdown::hangups()? };
        let opener = models::onnx_runtime(&config);
        server::run(config, listeners, opener, signals).await
    });
    runtime.shutdown_timeout(END_LIMIT); // A model may still be being opened.
    served
}

/// Opens each model, checks it as before serving, and prints what it is.
fn check(config: &Config) -> Result<()> {
    let opener = models::onnx_runtime(config);
    let mut found = Vec::new();
    for entry in model_files::read(&config.model)? {
        let file = match entry {
            Found::Model(file) => file,
            Found::Ensemble(EnsembleFile { source, rule, .. }) => {
                let how = if rule.interpolate { "mixed by rating" } else { "the nearest by rating" };
                println!("{source}: {} version {}, {} members, {how}", rule.name, rule.version, rule.members.len());
                found.push((source, rule.name));
                continue;
            }
        };
        let mut model = opener(&file)?;
        let cost = CostModel::new(config.max_batch);
        selfcheck::check(&mut *model, &cost, true)?;
        let metadata = model.metadata();
        println!("{}: {} version {}, {}", file.source, metadata.name, metadata.version, metadata.encoding);
        println!("  runs on {}, {} bytes, sha256 {}", model.provider().name(), file.bytes.len(), file.sha256);
        println!("  trained on: {}", metadata.trained_on);
        let (workers, threads) = (config.worker_count(model.provider()), config.threads);
        let plural = |count| if count == 1 { "" } else { "s" };
        println!("  {workers} worker{} of {threads} thread{}", plural(workers), plural(threads));
        let ms = |rows| cost.estimate(rows).as_secs_f64() * 1e3;
        println!(
            "  a run takes {:.2} ms for 1 situation, {:.2} ms for {}",
            ms(1),
            ms(config.max_batch),
            config.max_batch
        );
        found.push((file.source.clone(), metadata.name.clone()));
    }
    if let Some(text) = kit::describe(config)? {
        println!("{text}");
    }
    let names = found.iter().map(|(source, name)| (source.as_str(), name.as_str()));
    models::check_names(names, config.default_model.as_deref())
}
