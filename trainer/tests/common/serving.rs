//! A real server over some model files.
#![allow(dead_code, unreachable_pub)]

use std::{ffi::OsString, path::Path, time::Duration};

use tokio::{
    sync::{mpsc, oneshot},
    task::JoinHandle,
    time::Instant,
};
use tonic::transport::Channel;
use zeitnot_proto::v1::{
    PredictRequest, PredictResponse, model_service_client::ModelServiceClient,
    prediction_service_client::PredictionServiceClient,
};
use zeitnot_server::{
    cli::{Cli, Command},
    models,
    server::{self, Listeners, Signals},
};

pub(crate) struct Served {
    pub(crate) predictions: PredictionServiceClient<Channel>,
    pub(crate) models: ModelServiceClient<Channel>,
    stop: oneshot::Sender<()>,
    task: JoinHandle<anyhow::Result<()>>,
    _hangup: mpsc::Sender<()>,
}

impl Served {
    pub(crate) async fn start<P: AsRef<Path>>(files: &[P]) -> Self {
        let fixed = ["zeitnot", "serve", "--listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0", "--drain-delay-ms=0"];
        let files = files.iter().map(|file| file.as_ref().to_str().unwrap()).collect::<Vec<_>>().join(",");
        let arguments = fixed.iter().map(OsString::from).chain(["--model".into(), files.into()]);
        let Command::Serve(configured) = Cli::read(arguments).unwrap().command else { unreachable!() };
        let listeners = Listeners::bind(&configured.options).await.unwrap();
        let address = listeners.grpc_address().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let (hangup, hangups) = mpsc::channel(1);
        let shutdown = async move {
            let _ = stopped.await;
        };
        let opener = models::onnx_runtime(&configured.options);
        let signals = Signals { shutdown, hangups };
        let task = tokio::spawn(server::run(configured.options, listeners, opener, signals));
        let channel = Channel::from_shared(format!("http://{address}")).unwrap().connect_lazy();
        let (predictions, models) = (PredictionServiceClient::new(channel.clone()), ModelServiceClient::new(channel));
        Served { predictions, models, stop, task, _hangup: hangup }
    }

    /// Asks once the models are loaded.
    pub(crate) async fn predict(&mut self, asked: &PredictRequest) -> Result<PredictResponse, tonic::Status> {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            match self.predictions.predict(asked.clone()).await {
                Err(status) if status.code() == tonic::Code::Unavailable && Instant::now() < deadline => {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                answered => return answered.map(tonic::Response::into_inner),
            }
        }
    }

    pub(crate) async fn stop(self) {
        self.stop.send(()).unwrap();
        self.task.await.unwrap().unwrap();
    }
}
