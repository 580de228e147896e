//! Prints one JSON Schema as its types say it: `schema NAME`. `cargo xtask docs` publishes it.

use tcptoll::schema::Schema;

fn main() -> Result<(), String> {
    let name = std::env::args().nth(1).unwrap_or_default();
    let schema = Schema::ALL.into_iter().find(|schema| schema.name() == name);
    let schema = schema.ok_or_else(|| {
        let names: Vec<&str> = Schema::ALL.iter().map(|schema| schema.name()).collect();
        format!("no schema {name:?}; there are {}", names.join(", "))
    })?;
    print!("{}", schema.of_types().map_err(|error| error.to_string())?);
    Ok(())
}
