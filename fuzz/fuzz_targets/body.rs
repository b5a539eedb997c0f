//! JSON bodies as lenient as fastjson's: any bytes give a value or an error.
#![no_main]

use ferromq_protocol::body;
use ferromq_protocol::fastjson;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _ = fastjson::from_slice::<body::heartbeat::HeartbeatData>(data);
    let _ = fastjson::from_slice::<body::route::TopicRouteData>(data);
    let _ = fastjson::from_slice::<body::config::TopicConfigTable>(data);
    let _ = fastjson::from_slice::<body::lock::LockBatchRequest>(data);
});
