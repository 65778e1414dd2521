//! Published prices, names as they come in the wild, and names that mean harm.

use proptest::prelude::*;

use super::*;

/// Rates from dollars per million tokens: input, output, cache read, cache write.
fn dollars(rates: [f64; 4]) -> Rates {
    let [input, output, cache_read, cache_write] =
        rates.map(|dollars| NanoUsd::from_dollars(dollars).unwrap());
    Rates { input, output, cache_read, cache_write }
}

#[track_caller]
fn check(prices: &Prices, model: &str, source: PriceSource, rates: [f64; 4]) {
    let expected = Price { rates: dollars(rates), source };
    assert_eq!(prices.price(model), expected, "{model:?}");
    assert_eq!(prices.price(model), expected, "{model:?}, remembered");
}

const FALLBACK: [f64; 4] = [10.0, 30.0, 10.0, 10.0];

#[test]
fn known_models_have_their_published_prices() {
    let gpt_4o = [2.5, 10.0, 1.25, 2.5];
    let sonnet = [3.0, 15.0, 0.3, 3.75];
    let opus = [15.0, 75.0, 1.5, 18.75];
    let prices = Prices::builtin();
    for (model, rates) in [
        ("gpt-4o", gpt_4o),
        ("GPT-4o", gpt_4o),
        (" gpt-4o ", gpt_4o),
        ("openai/gpt-4o", gpt_4o),
        ("azure/gpt-4o", gpt_4o),
        ("/gpt-4o", gpt_4o),
        ("gpt-4o-2024-08-06", gpt_4o),
        ("gpt-4o-of-our-own", gpt_4o),
        ("gpt-4o-mini", [0.15, 0.6, 0.075, 0.15]),
        // The launch price, without a discount for the cache; the longest name wins.
        ("gpt-4o-2024-05-13", [5.0, 15.0, 5.0, 5.0]),
        ("gpt-4o-2024-05-13-some-suffix", [5.0, 15.0, 5.0, 5.0]),
        ("ft:gpt-4o-2024-08-06:org::abc", [3.75, 15.0, 3.75, 3.75]),
        ("claude-sonnet-4", sonnet),
        ("claude-sonnet-4-20250514", sonnet),
        ("anthropic/claude-3-5-sonnet", sonnet),
        ("us.anthropic.claude-sonnet-4-20250514-v1:0", sonnet),
        ("bedrock/us.anthropic.claude-sonnet-4-20250514-v1:0", sonnet),
        ("vertex_ai/claude-sonnet-4@20250514", sonnet),
        ("anthropic.claude-opus-4-20250514-v1:0", opus),
        ("mars.anthropic.claude-opus-4-20250514-v1:0", opus),
        // The price doubles for long prompts; this is the one for short ones.
        ("claude-sonnet-4-5", sonnet),
        ("gemini-2.5-pro", [1.25, 10.0, 0.125, 1.25]),
        ("models/gemini-2.5-pro", [1.25, 10.0, 0.125, 1.25]),
        // The catalogue has a seat's price of zero here; the model's own is the cautious one.
        ("github-copilot/gpt-4o", gpt_4o),
        ("meta-llama/llama-3.3-70b-instruct:free", [0.0; 4]),
    ] {
        check(&prices, model, PriceSource::Catalogue, rates);
    }
}

#[test]
fn unknown_models_are_charged_the_fallback() {
    let prices = Prices::builtin();
    for model in [
        "",
        " ",
        "-",
        "/",
        "//",
        "gpt",
        "claude",
        "gpt-99",
        "gpt-4omni",
        "my-custom-model",
        "openai/",
        "openai",
        "free",
        ":free",
        "my-model:free",
        // Charged by the hour: that its tokens cost nothing is no reason to let it run.
        "whisper-1",
    ] {
        check(&prices, model, PriceSource::Fallback, FALLBACK);
    }
    assert_eq!(dollars(FALLBACK), Rates::FALLBACK);
}

#[test]
fn own_prices_win_and_the_longest_name_among_them() {
    let own = |name: &str, rate: f64| (name.to_owned(), dollars([rate; 4]));
    let prices = Prices::builtin()
        .with_own([own("gpt-4o", 1.0), own("GPT-4o-Mini", 2.0), own("acme/gpt-4o", 3.0)])
        .with_own([own("house-", 4.0), own("llama", 5.0), own("llama", 6.0), own(" ", 9.0)]);
    for (model, rate) in [
        ("gpt-4o", 1.0),
        ("gpt-4o-2024-05-13", 1.0),
        ("openai/gpt-4o", 1.0),
        ("gpt-4o-mini", 2.0),
        ("gpt-4o-mini-2024-07-18", 2.0),
        ("acme/gpt-4o-mini", 2.0),
        ("acme/gpt-4o", 3.0),
        ("house-7b", 4.0),
        ("llama", 6.0),
        ("llama:8b", 6.0),
    ] {
        check(&prices, model, PriceSource::Own, [rate; 4]);
    }
    // A part of a word is not a name.
    check(&prices, "gpt-4omni", PriceSource::Fallback, FALLBACK);
    check(&prices, "llama3", PriceSource::Fallback, FALLBACK);
    check(&prices, "claude-sonnet-4", PriceSource::Catalogue, [3.0, 15.0, 0.3, 3.75]);
}

#[test]
fn the_warning_is_the_one_on_the_page() {
    const HINT: &str = "hint=\"Add this model to pricing_table= to get accurate cost tracking\"";
    for (model, nanos, expected) in [
        ("my-custom-model", 4_200_000, "model_id=my-custom-model estimated_cost_usd=0.004200"),
        ("m", 0, "model_id=m estimated_cost_usd=0.000000"),
        ("m", 499, "model_id=m estimated_cost_usd=0.000000"),
        ("m", 500, "model_id=m estimated_cost_usd=0.000001"),
        ("m", 12_000_000_000, "model_id=m estimated_cost_usd=12.000000"),
        ("", 0, "model_id=\"\" estimated_cost_usd=0.000000"),
        ("a b=\"c\"\nd", 0, "model_id=\"a b=\\\"c\\\"\\nd\" estimated_cost_usd=0.000000"),
    ] {
        let warning = fallback_warning(model, NanoUsd(nanos));
        let expected = format!("budget.unknown_model_cost_estimated {expected} {HINT}");
        assert_eq!(warning, expected, "{model:?}");
    }
}

#[test]
fn no_more_names_are_remembered_than_there_is_room_for() {
    let prices = Prices::builtin();
    for number in 0..3 * REMEMBERED {
        prices.price(&format!("m{number}"));
        assert!(prices.known.read().unwrap().len() <= REMEMBERED);
    }
    // What is beyond the longest name makes no difference, so it makes no second entry either.
    let (prices, long) = (Prices::builtin(), "x".repeat(MAX_NAME));
    for tail in ["", "a", "b", &"y".repeat(1 << 20)] {
        prices.price(&format!("{long}{tail}"));
    }
    assert_eq!(prices.known.read().unwrap().len(), 1);
}

#[test]
fn the_catalogue_is_the_one_that_was_locked() {
    let lock = include_str!("../../../../Cargo.lock");
    let Dated { source, version, date } = Prices::builtin().dated();
    let entry = format!("name = \"{source}\"\nversion = \"{version}\"\n");
    assert!(lock.replace('\r', "").contains(&entry), "{source} was updated: check `dated()`");
    let noon: jiff::Timestamp = format!("{date}T12:00:00Z").parse().unwrap();
    assert_eq!(noon.as_second() as u64, PRICED_AT.as_secs());
}

proptest! {
    #[test]
    fn any_name_has_a_price(model in "\\PC{0,300}") {
        let price = Prices::builtin().price(&model);
        prop_assert!(price.rates.input > NanoUsd(0) || model.trim().ends_with(":free"));
        fallback_warning(&model, NanoUsd(u64::MAX));
    }

    #[test]
    fn names_made_of_known_parts_have_a_price(
        parts in prop::collection::vec(
            prop::sample::select(&[
                "gpt", "4o", "claude", "us.anthropic.", "openai", "aws", "/", "-", ":", "@", "_",
                ".", "20250514", "2024", "free", "é", "\u{662}", "\0", "mini", "gemini", "v1:0",
            ][..]),
            0..40,
        ),
    ) {
        Prices::builtin().with_own([("gpt".to_owned(), Rates::FALLBACK)]).price(&parts.concat());
    }
}
