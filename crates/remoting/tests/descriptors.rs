//! Out of file descriptors: the server waits and goes on when there are some again. Alone in its process,
//! because the limit is the process's.

use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

use ferromq_protocol::command::Command;
use ferromq_remoting::{
    Client, ClientConfig, Dispatch, NoEvents, Outcome, RequestContext, Run, Server, ServerConfig,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

#[tokio::test]
async fn accepting_goes_on_when_descriptors_are_free_again() {
    let mut table = Dispatch::builder();
    let ok: fn(&RequestContext, Command) -> Outcome = |_, request| request.reply(0).into();
    table.on(1, Run::Inline, Arc::new(ok));
    let server = Server::bind(
        "127.0.0.1:0".parse().unwrap(),
        ServerConfig::default(),
        table.build(),
        Arc::new(NoEvents),
    )
    .unwrap();
    let (addr, stats, stop) = (
        server.local_addr().to_string(),
        server.stats(),
        CancellationToken::new(),
    );
    let tasks = TaskTracker::new();
    tasks.spawn(server.run(stop.clone()));
    let client = Client::new(ClientConfig::default(), Dispatch::none());

    let old = getrlimit(Resource::Nofile);
    setrlimit(
        Resource::Nofile,
        Rlimit {
            current: Some(200),
            maximum: old.maximum,
        },
    )
    .unwrap();
    let mut hoard: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    assert!(!hoard.is_empty());
    // One descriptor is left: the client's end takes it, the server's end has none.
    hoard.pop();
    let soon = Duration::from_secs(30);
    let (answer, ()) = tokio::join!(client.call(&addr, Command::request(1), soon), async {
        let starved = tokio::time::timeout(soon, async {
            while stats.accept_errors() < 3 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
        starved.await.expect("the server never ran short");
        hoard.clear();
    });
    assert_eq!(answer.unwrap().code, 0);
    assert!(
        stats.accept_errors() < 50,
        "the accept loop spins: {} errors",
        stats.accept_errors()
    );
    stop.cancel();
    tasks.close();
    tasks.wait().await;
}
