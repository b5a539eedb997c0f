//! Message filters: tags, SQL92, bloom.
