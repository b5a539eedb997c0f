//! What has to hold for any text that is taken for a filter.

use ferromq_filter::sql92::Sql92;

/// Any text is a filter or an error with a position; evaluation never panics.
pub fn sql92(text: &str) {
    if let Ok(filter) = Sql92::parse(text) {
        let _held: bool = filter.eval(&|name| (name.len() % 2 == 0).then(|| name.to_owned().into()));
    }
}
