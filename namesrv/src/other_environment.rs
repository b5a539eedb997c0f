//! Routes of another environment: a test cluster's name server that asks the production one about topics that it does not
//! know itself (`clusterTest=true`).
//!
//! The name servers of the other environment are given by address, or asked for at the address server under the
//! environment's name as the unit. What holds: a question that already came from such a name server is not passed on, so
//! two that point at each other answer "no route" instead of asking in circles.

use std::time::Duration;

use ferromq_protocol::code::response;
use ferromq_protocol::command::Command;
use ferromq_remoting::address_server::AddressServer;
use ferromq_remoting::names::FETCH_EVERY;
use ferromq_remoting::{CallError, Client, ClientConfig, Dispatch, NameServers};

use crate::config::NamesrvSettings;

/// Argument of a question that came from a name server.
const PASSED_ON: &str = "clusterTest";
/// Time for one name server to answer.
const PATIENCE: Duration = Duration::from_secs(3);

/// The name servers of the other environment.
#[derive(Debug, Clone)]
pub(crate) struct OtherEnvironment {
    name: String,
    names: NameServers,
    client: Client,
}

impl OtherEnvironment {
    /// The environment of the settings, if they ask for one.
    ///
    /// # Errors
    /// An address that is not one.
    pub(crate) fn new(settings: &NamesrvSettings) -> Result<Option<Self>, CallError> {
        if !settings.cluster_test {
            return Ok(None);
        }
        let list = settings.product_env_namesrv_addr.trim();
        let names = if list.is_empty() {
            let server = AddressServer::new(
                &settings.rmq_address_server_domain,
                &settings.rmq_address_server_sub_group,
                Some(&settings.product_env_name),
            )?;
            NameServers::from_address_server(server, FETCH_EVERY)
        } else {
            NameServers::parse(list)?
        };
        Ok(Some(Self {
            name: settings.product_env_name.clone(),
            names,
            client: Client::new(ClientConfig::default(), Dispatch::none()),
        }))
    }

    /// Whether a question may be passed on.
    pub(crate) fn takes(request: &Command) -> bool {
        request.ext.get(PASSED_ON).is_none()
    }

    /// Asks one name server after the other about a topic; `otherwise` is the answer if none has a route.
    pub(crate) async fn route(self, request: Command, topic: String, otherwise: Command) -> Command {
        let mut question = Command::request(request.code);
        for (key, value) in request.ext.iter() {
            question.ext.set(key, value);
        }
        question.ext.set(PASSED_ON, "true");
        for addr in self.names.addresses().await {
            match self.client.call(&addr, question.clone(), PATIENCE).await {
                Ok(answer) if answer.code == response::SUCCESS => {
                    return request.reply(response::SUCCESS).with_body(answer.body);
                }
                Ok(answer) => {
                    tracing::debug!(
                        environment = self.name,
                        topic,
                        name_server = addr,
                        code = answer.code,
                        "no route in the other environment"
                    );
                }
                Err(error) => {
                    tracing::info!(environment = self.name, topic, name_server = addr, %error, "cannot ask the other environment");
                }
            }
        }
        otherwise
    }
}
