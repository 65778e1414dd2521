//! Bills, computed by hand from the providers' public price lists.

use deadstop_core::Tokens;

use super::*;

/// Where the price comes from, the model that was asked for, tokens (input, output, read from a
/// cache, written to it), what else the answer told, and the bill in nano-dollars.
type Case = (&'static str, &'static str, [u64; 4], &'static str, u64);

/// Computed as the sum of tokens times dollars per million, from the lists as they stood on the
/// day of the catalogue: openai.com/api/pricing, platform.claude.com/docs (pricing, prompt caching),
/// ai.google.dev/gemini-api/docs/pricing, and page 004 of the seeds for unknown models.
const CASES: &[Case] = &[
    ("OpenAI pricing page", "gpt-4o", [1200, 340, 0, 0], "", 6_400_000),
    ("OpenAI pricing page", "gpt-4o", [800, 1000, 50000, 0], "", 74_500_000),
    ("OpenAI pricing page", "gpt-4o-mini", [1200, 340, 0, 0], "", 384_000),
    ("OpenAI pricing page", "gpt-4o-mini", [800, 1000, 50000, 0], "", 4_470_000),
    ("OpenAI pricing page", "gpt-4.1", [1200, 340, 0, 0], "", 5_120_000),
    ("OpenAI pricing page", "gpt-4.1", [800, 1000, 50000, 0], "", 34_600_000),
    ("OpenAI pricing page", "gpt-4.1-mini", [1200, 340, 0, 0], "", 1_024_000),
    ("OpenAI pricing page", "gpt-4.1-mini", [800, 1000, 50000, 0], "", 6_920_000),
    ("OpenAI pricing page", "gpt-4.1-nano", [1200, 340, 0, 0], "", 256_000),
    ("OpenAI pricing page", "gpt-4.1-nano", [800, 1000, 50000, 0], "", 1_730_000),
    ("OpenAI pricing page", "gpt-5", [1200, 340, 0, 0], "", 4_900_000),
    ("OpenAI pricing page", "gpt-5", [800, 1000, 50000, 0], "", 17_250_000),
    ("OpenAI pricing page", "gpt-5-mini", [1200, 340, 0, 0], "", 980_000),
    ("OpenAI pricing page", "gpt-5-mini", [800, 1000, 50000, 0], "", 3_450_000),
    ("OpenAI pricing page", "gpt-5-nano", [1200, 340, 0, 0], "", 196_000),
    ("OpenAI pricing page", "gpt-5-nano", [800, 1000, 50000, 0], "", 690_000),
    ("OpenAI pricing page", "o3", [1200, 340, 0, 0], "", 5_120_000),
    ("OpenAI pricing page", "o3", [800, 1000, 50000, 0], "", 34_600_000),
    ("OpenAI pricing page", "o4-mini", [1200, 340, 0, 0], "", 2_816_000),
    ("OpenAI pricing page", "o4-mini", [800, 1000, 50000, 0], "", 19_030_000),
    ("OpenAI pricing page", "o1", [1200, 340, 0, 0], "", 38_400_000),
    ("OpenAI pricing page", "o1", [800, 1000, 50000, 0], "", 447_000_000),
    ("Anthropic pricing page", "claude-sonnet-4-5", [1000, 500, 0, 0], "", 10_500_000),
    ("Anthropic pricing page", "claude-sonnet-4-5", [12, 700, 90000, 4000], "", 52_536_000),
    (
        "Anthropic, prompt caching: 1-hour writes at twice the input price",
        "claude-sonnet-4-5",
        [12, 700, 0, 6000],
        "cache_write_1h: 6000",
        46_536_000,
    ),
    ("Anthropic pricing page", "claude-opus-4-1", [1000, 500, 0, 0], "", 52_500_000),
    ("Anthropic pricing page", "claude-opus-4-1", [12, 700, 90000, 4000], "", 262_680_000),
    (
        "Anthropic, prompt caching: 1-hour writes at twice the input price",
        "claude-opus-4-1",
        [12, 700, 0, 6000],
        "cache_write_1h: 6000",
        232_680_000,
    ),
    ("Anthropic pricing page", "claude-haiku-4-5", [1000, 500, 0, 0], "", 3_500_000),
    ("Anthropic pricing page", "claude-haiku-4-5", [12, 700, 90000, 4000], "", 17_512_000),
    (
        "Anthropic, prompt caching: 1-hour writes at twice the input price",
        "claude-haiku-4-5",
        [12, 700, 0, 6000],
        "cache_write_1h: 6000",
        15_512_000,
    ),
    ("Anthropic pricing page", "claude-3-5-haiku-20241022", [1000, 500, 0, 0], "", 2_800_000),
    ("Anthropic pricing page", "claude-3-5-haiku-20241022", [12, 700, 90000, 4000], "", 14_009_600),
    (
        "Anthropic, prompt caching: 1-hour writes at twice the input price",
        "claude-3-5-haiku-20241022",
        [12, 700, 0, 6000],
        "cache_write_1h: 6000",
        12_409_600,
    ),
    ("Anthropic pricing page", "claude-opus-4-5", [1000, 500, 0, 0], "", 17_500_000),
    ("Anthropic pricing page", "claude-opus-4-5", [12, 700, 90000, 4000], "", 87_560_000),
    (
        "Anthropic, prompt caching: 1-hour writes at twice the input price",
        "claude-opus-4-5",
        [12, 700, 0, 6000],
        "cache_write_1h: 6000",
        77_560_000,
    ),
    (
        "Anthropic: both lifetimes in one request",
        "claude-sonnet-4-5",
        [100, 10, 0, 10000],
        "cache_write_1h: 4000",
        46_950_000,
    ),
    (
        "Anthropic: web search at $10 per 1,000",
        "claude-sonnet-4-5",
        [1000, 500, 0, 0],
        "searches: 3",
        40_500_000,
    ),
    (
        "Anthropic: long context above 200,000 tokens",
        "claude-sonnet-4-5",
        [250000, 1000, 0, 0],
        "",
        1_522_500_000,
    ),
    (
        "Anthropic: long context counts cached tokens, too",
        "claude-sonnet-4-5",
        [50000, 1000, 160000, 0],
        "",
        418_500_000,
    ),
    (
        "Anthropic: at 200,000 exactly the usual price",
        "claude-sonnet-4-5",
        [200000, 1000, 0, 0],
        "",
        615_000_000,
    ),
    (
        "Anthropic: batches at half the price",
        "claude-sonnet-4-5",
        [1000, 500, 0, 0],
        "tier: batch",
        5_250_000,
    ),
    ("OpenAI: flex at half the price", "gpt-5", [1000, 500, 0, 0], "tier: flex", 3_125_000),
    ("OpenAI: priority", "gpt-5", [1000, 500, 0, 0], "tier: priority", 12_500_000),
    ("OpenAI: batch", "gpt-5", [1000, 500, 0, 0], "tier: batch", 3_125_000),
    ("OpenAI: priority", "gpt-4.1", [1000, 500, 2000, 0], "tier: priority", 12_250_000),
    ("OpenAI: batch", "gpt-4.1", [1000, 500, 0, 0], "tier: batch", 3_000_000),
    ("OpenAI: web search at $10 per 1,000", "gpt-5", [1000, 500, 0, 0], "searches: 2", 26_250_000),
    (
        "OpenAI: file search at $2.50 per 1,000",
        "gpt-5",
        [1000, 500, 0, 0],
        "file_searches: 4",
        16_250_000,
    ),
    ("OpenAI: reasoning is output", "o3", [100, 9000, 0, 0], "", 72_200_000),
    ("Gemini API pricing: up to 200,000", "gemini-2.5-pro", [1000, 500, 0, 0], "", 6_250_000),
    ("Gemini API pricing: above 200,000", "gemini-2.5-pro", [300000, 500, 0, 0], "", 757_500_000),
    (
        "Gemini API pricing: cached above 200,000",
        "gemini-2.5-pro",
        [1000, 500, 299000, 0],
        "",
        84_750_000,
    ),
    ("Gemini API pricing: batch", "gemini-2.5-pro", [1000, 500, 0, 0], "tier: batch", 3_125_000),
    ("Gemini API pricing", "gemini-2.5-flash", [1000, 500, 0, 0], "", 1_550_000),
    (
        "Gemini API pricing: sound in",
        "gemini-2.5-flash",
        [1000, 500, 0, 0],
        "audio_input: 600",
        1_970_000,
    ),
    ("Gemini API pricing", "gemini-2.5-flash-lite", [1000, 500, 0, 0], "", 300_000),
    ("OpenAI: embeddings", "text-embedding-3-small", [8000, 0, 0, 0], "", 160_000),
    ("OpenAI: embeddings", "text-embedding-3-large", [8000, 0, 0, 0], "", 1_040_000),
    ("OpenAI: embeddings", "text-embedding-ada-002", [8000, 0, 0, 0], "", 800_000),
    (
        "Azure: the answer names the model",
        "my-deployment",
        [1000, 500, 0, 0],
        "model: gpt-4o-2024-08-06",
        7_500_000,
    ),
    (
        "OpenRouter names the provider in front",
        "anthropic/claude-sonnet-4-5",
        [1000, 500, 0, 0],
        "",
        10_500_000,
    ),
    ("Unknown: $10 / $30 (seed E5)", "my-custom-model", [120, 100, 0, 0], "", 4_200_000),
];

fn counted(told: &str) -> Counted {
    let mut counted = Counted::default();
    for one in told.split(", ").filter(|one| !one.is_empty()) {
        let (name, value) = one.split_once(": ").unwrap();
        let number = || value.parse().unwrap();
        match name {
            "cache_write_1h" => counted.cache_write_1h = number(),
            "searches" => counted.searches = number(),
            "file_searches" => counted.file_searches = number(),
            "audio_input" => counted.audio_input = number(),
            "tier" => counted.tier = Some(value.to_owned()),
            "model" => counted.model = Some(value.to_owned()),
            other => panic!("what is {other}?"),
        }
    }
    counted
}

fn usage([input, output, cache_read, cache_write]: [u64; 4]) -> Usage {
    Usage {
        input: Tokens(input),
        output: Tokens(output),
        cache_read: Tokens(cache_read),
        cache_write: Tokens(cache_write),
    }
}

#[test]
fn bills_are_right_to_the_nano_dollar() {
    let prices = Prices::builtin();
    assert!(CASES.len() >= 60, "{}", CASES.len());
    let mut wrong = Vec::new();
    for (source, asked, tokens, told, expected) in CASES {
        let bill = prices.bill(None, asked, &usage(*tokens), &counted(told));
        if bill.cost != NanoUsd(*expected) {
            wrong.push(format!("{source}: {asked} {tokens:?} {told}: {bill:?}, not {expected}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Small prompts are billed without the catalogue. That must show nowhere, least of all where a tier begins.
#[test]
fn rates_give_the_bill_of_the_catalogue() {
    let prices = Prices::builtin();
    let (plain, mut by_rates) = (Counted::default(), 0);
    for (_, model, ..) in CASES {
        let (price, Some(entry)) = prices.found(model) else { continue };
        by_rates += u32::from(entry.by_rates > 0);
        for tokens in [1, 7, 999, 12_345, 99_999, 100_001, 199_999, 200_001, 272_001, 900_001] {
            let parts = [
                [tokens, 77, 0, 0],
                [tokens / 2, 70_003, tokens / 2, 0],
                [tokens / 3, 0, tokens / 3, tokens / 3],
            ];
            for usage in parts.map(usage) {
                let asked = catalogue(entry.provider.as_deref(), &entry.model, &usage, &plain);
                let expected = asked.unwrap_or_else(|| price.rates.cost(&usage));
                let bill = prices.bill(None, model, &usage, &plain);
                assert_eq!(bill.cost, expected, "{model} {usage:?}");
            }
        }
    }
    assert!(by_rates > 40, "only {by_rates} models are billed by their rates");
}

#[test]
fn a_provider_has_its_own_terms() {
    let terms = |text: &str| serde_json::from_str::<Terms>(text).unwrap();
    let local = terms(r#"{ "free": true }"#);
    let azure = terms(r#"{ "factor": 0.8, "models": { "prod": [1, 2] } }"#);
    let prices = Prices::builtin();
    let tokens = usage([1_000_000, 1_000_000, 0, 0]);
    let none = Counted::default();
    for (terms, asked, expected) in [
        (Some(&local), "llama-of-my-own", 0),
        (None, "gpt-4o", 12_500_000_000),
        (Some(&azure), "gpt-4o", 10_000_000_000),
        (Some(&azure), "prod", 3_000_000_000),
        (Some(&azure), "prod-2", 3_000_000_000),
        (None, "prod", 40_000_000_000),
    ] {
        let bill = prices.bill(terms, asked, &tokens, &none);
        assert_eq!(bill.cost, NanoUsd(expected), "{terms:?} {asked}");
        assert_eq!(prices.price_at(terms, asked).rates.cost(&tokens), bill.cost);
    }
    assert_eq!(prices.bill(None, "prod", &tokens, &none).source, PriceSource::Fallback);
    assert_eq!(prices.bill(Some(&local), "x", &tokens, &none).source, PriceSource::Own);
}

/// An operator's own price for a name holds, whatever the answer calls the model.
#[test]
fn an_own_price_comes_before_the_answers_name() {
    let rates = Rates { input: NanoUsd(1_000_000_000), ..Rates::default() };
    let prices = Prices::builtin().with_own([("my-deployment".to_owned(), rates)]);
    let told = counted("model: gpt-4o");
    let bill = prices.bill(None, "my-deployment", &usage([1000, 0, 0, 0]), &told);
    assert_eq!((bill.cost, bill.source), (NanoUsd(1_000_000), PriceSource::Own));
}
