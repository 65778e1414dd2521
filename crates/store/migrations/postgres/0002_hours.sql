-- What calls came to by the hour, as costs has it by the day.
CREATE TABLE hour_costs (
    project         TEXT COLLATE "C" NOT NULL,
    hour            BIGINT NOT NULL,
    agent_number    BIGINT NOT NULL,
    provider        TEXT COLLATE "C" NOT NULL,
    model           TEXT COLLATE "C" NOT NULL,
    calls           BIGINT NOT NULL,
    input           BIGINT NOT NULL,
    output          BIGINT NOT NULL,
    cache_read      BIGINT NOT NULL,
    cache_write     BIGINT NOT NULL,
    cost            BIGINT NOT NULL,
    PRIMARY KEY (project, hour, agent_number, provider, model)
);

-- Of the calls that are there already.
INSERT INTO hour_costs
SELECT project, at_ms / 3600000, agent_number, substr(coalesce(server, ''), 1, 200),
    substr(name, 1, 200), COUNT(*), CAST(SUM(least(input, 1000000000000)) AS BIGINT), CAST(SUM(least(output, 1000000000000)) AS BIGINT),
    CAST(SUM(least(cache_read, 1000000000000)) AS BIGINT), CAST(SUM(least(cache_write, 1000000000000)) AS BIGINT), CAST(SUM(least(cost, 1000000000000000)) AS BIGINT)
FROM calls WHERE status IS NOT NULL AND (kind = 0 OR cost > 0)
GROUP BY 1, 2, 3, 4, 5;
