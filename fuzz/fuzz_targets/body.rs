//! JSON bodies as lenient as fastjson's: any bytes give a value or an error.
#![no_main]

use ferromq_protocol::body;
use ferromq_protocol::fastjson;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _ = fastjson::from_slice::<body::HeartbeatData>(data);
    let _ = fastjson::from_slice::<body::TopicRouteData>(data);
    let _ = fastjson::from_slice::<body::TopicConfigTable>(data);
    let _ = fastjson::from_slice::<body::LockBatchRequestBody>(data);
});
