// Generated from the server's OpenAPI document by `npm run types`. Do not edit.
export interface paths {
    "/api/activity": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * How many calls were made over time: those that `/api/calls` lists. Steps without a call are left out.
         *     Without `from`, the last 60 steps.
         */
        get: {
            parameters: {
                query?: {
                    /** @description Only this agent's. */
                    agent?: string;
                    /** @description Not before this time, in milliseconds since 1970. */
                    from?: number;
                    /** @description How wide the steps are; a minute if it is left out. */
                    step?: "10s" | "minute" | "hour" | "day";
                    /** @description Before this time, in milliseconds since 1970. */
                    to?: number;
                };
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                /** @description Steps in their order */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Page_Activity"];
                    };
                };
            };
        };
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/agent-health": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** How many agents there are, and how they are: of all of them, however many pages the list has. */
        get: {
            parameters: {
                query?: never;
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                /** @description Numbers of agents */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["AgentHealth"];
                    };
                };
            };
        };
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/agents": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** The agents of the project. */
        get: {
            parameters: {
                query?: {
                    /** @description Only those that may run, or only those that may not. */
                    active?: boolean;
                    /** @description Where to go on: `next` of the page before. */
                    cursor?: string;
                    /** @description Entries on a page. */
                    limit?: number;
                    /** @description Only those with this tag. */
                    tag?: string;
                };
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                /** @description By name */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Page_Agent"];
                    };
                };
            };
        };
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/agents/{name}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** One agent. */
        get: {
            parameters: {
                query?: never;
                header?: never;
                path: {
                    /** @description The agent */
                    name: string;
                };
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                /** @description The agent */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Agent"];
                    };
                };
            };
        };
        put?: never;
        post?: never;
        /**
         * Removes an agent from lists and counts, until it is used again. Its calls, sessions, incidents, policy,
         *     keys and audit entries stay. A stop or pause stays too.
         */
        delete: {
            parameters: {
                query?: {
                    /** @description The person who says so, where a client speaks for several. */
                    by?: string;
                    /** @description Why. */
                    reason?: string;
                };
                header?: never;
                path: {
                    /** @description The agent */
                    name: string;
                };
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                /** @description Removed, on all nodes and on disk */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["RemovedAgent"];
                    };
                };
            };
        };
        options?: never;
        head?: never;
        /** Switches an agent on or off, or tags it. */
        patch: {
            parameters: {
                query?: never;
                header?: never;
                path: {
                    /** @description The agent */
                    name: string;
                };
                cookie?: never;
            };
            requestBody: {
                content: {
                    "application/json": components["schemas"]["AgentChange"];
                };
            };
            responses: {
                /** @description In force and on disk */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Agent"];
                    };
                };
            };
        };
        trace?: never;
    };
    "/api/agents/{name}/grants": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** The grants of an agent. */
        get: {
            parameters: {
                query?: never;
                header?: never;
                path: {
                    /** @description The agent */
                    name: string;
                };
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                /** @description Those in force */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Given"];
                    };
                };
            };
        };
        put?: never;
        /** Gives an agent a grant, for all its sessions together. */
        post: {
            parameters: {
                query?: never;
                header?: never;
                path: {
                    /** @description The agent */
                    name: string;
                };
                cookie?: never;
            };
            requestBody: {
                content: {
                    "application/json": components["schemas"]["NewGrant"];
                };
            };
            responses: {
                /** @description In force and on disk */
                201: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Grant"];
                    };
                };
            };
        };
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/agents/{name}/grants/{id}/revoke": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Takes a grant of an agent back. */
        post: {
            parameters: {
                query?: never;
                header?: never;
                path: {
                    /** @description The grant */
                    id: string;
                    /** @description The agent */
                    name: string;
                };
                cookie?: never;
            };
            requestBody: {
                content: {
                    "application/json": components["schemas"]["Because"];
                };
            };
            responses: {
                /** @description As it was */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Grant"];
                    };
                };
            };
        };
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/agents/{name}/kill-switch": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** An agent's kill switch: its own, or else the project's, also before its first call. */
        get: {
            parameters: {
                query?: never;
                header?: never;
                path: {
                    /** @description The agent */
                    name: string;
                };
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                /** @description In force */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["KillSwitch"];
                    };
                };
            };
        };
        /** Sets an agent's kill switch. */
        put: {
            parameters: {
                query?: never;
                header?: {
                    /** @description The ETag of what it replaces */
                    "if-match"?: string | null;
                };
                path: {
                    /** @description The agent; it need not have been heard of yet */
                    name: string;
                };
                cookie?: never;
            };
            requestBody: {
                content: {
                    "application/json": components["schemas"]["KillSwitch"];
                };
            };
            responses: {
                /** @description In force */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["KillSwitch"];
                    };
                };
            };
        };
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/agents/{name}/prevention-config": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** The guards in force for an agent: its own, or else the project's, also before its first call. */
        get: {
            parameters: {
                query?: never;
                header?: never;
                path: {
                    /** @description The agent */
                    name: string;
                };
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                /** @description In force */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Prevention"];
                    };
                };
            };
        };
        /** Gives an agent guards of its own. */
        put: {
            parameters: {
                query?: never;
                header?: {
                    /** @description The ETag of what it replaces */
                    "if-match"?: string | null;
                };
                path: {
                    /** @description The agent; it need not have been heard of yet */
                    name: string;
                };
                cookie?: never;
            };
            requestBody: {
                content: {
                    "application/json": components["schemas"]["PreventionConfig"];
                };
            };
            responses: {
                /** @description In force */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Prevention"];
                    };
                };
            };
        };
        post?: never;
        /** Takes an agent back to the project's guards. Its kill switch stays. */
        delete: {
            parameters: {
                query?: never;
                header?: {
                    /** @description The ETag of what it replaces */
                    "if-match"?: string | null;
                };
                path: {
                    /** @description The agent */
                    name: string;
                };
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                /** @description In force */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Prevention"];
                    };
                };
            };
        };
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/alerts/deliveries": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** The log of deliveries, the newest first. */
        get: {
            parameters: {
                query?: {
                    /** @description Only those about this agent. */
                    agent?: string;
                    /** @description Where to go on: `next` of the page before. */
                    cursor?: string;
                    /** @description Not before this time, in milliseconds since 1970. */
                    from?: number;
                    /** @description Only those about this incident. */
                    incident?: string;
                    /** @description Entries on a page. */
                    limit?: number;
                    /** @description Only those that stand so. */
                    state?: "waiting" | "delivered" | "failed";
                    /** @description Only those to this target. */
                    target?: string;
                    /** @description Before this time, in milliseconds since 1970. */
                    to?: number;
                };
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                /** @description A page of them */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Page_Delivered"];
                    };
                };
            };
        };
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/alerts/targets": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** The targets of the project. */
        get: {
            parameters: {
                query?: never;
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                /** @description All of them */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Page_Target"];
                    };
                };
            };
        };
        put?: never;
        /** Makes a target. */
        post: {
            parameters: {
                query?: never;
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody: {
                content: {
                    "application/json": components["schemas"]["TargetOrder"];
                };
            };
            responses: {
                /** @description The target, and once what it is signed with */
                201: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["MadeTarget"];
                    };
                };
            };
        };
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/alerts/targets/{id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** One target. */
        get: {
            parameters: {
                query?: never;
                header?: never;
                path: {
                    /** @description The target's id */
                    id: string;
                };
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                /** @description The target */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Target"];
                    };
                };
            };
        };
        /** Changes a target. */
        put: {
            parameters: {
                query?: never;
                header?: never;
                path: {
                    /** @description The target's id */
                    id: string;
                };
                cookie?: never;
            };
            requestBody: {
                content: {
                    "application/json": components["schemas"]["TargetOrder"];
                };
            };
            responses: {
                /** @description The target, and once what it is signed with */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["MadeTarget"];
                    };
                };
            };
        };
        post?: never;
        /** Takes a target away. */
        delete: {
            parameters: {
                query?: never;
                header?: never;
                path: {
                    /** @description The target's id */
                    id: string;
                };
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                /** @description It is gone */
                204: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content?: never;
                };
            };
        };
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/alerts/targets/{id}/test": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Sends a test to a target. */
        post: {
            parameters: {
                query?: never;
                header?: never;
                path: {
                    /** @description The target's id */
                    id: string;
                };
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                /** @description On its way */
                202: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Tested"];
                    };
                };
            };
        };
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/allow": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Calls that were refused because of their harm, and can be allowed once. */
        get: {
            parameters: {
                query?: never;
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                /** @description Those of the last hour, the newest first */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["RefusedCalls"];
                    };
                };
            };
        };
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/allow/{code}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** One of them, whole. */
        get: {
            parameters: {
                query?: never;
                header?: never;
                path: {
                    /** @description The code that the refusal names */
                    code: string;
                };
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                /** @description As it is now */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["RefusedCall"];
                    };
                };
            };
        };
        put?: never;
        /** Allows exactly this call of its session, once, within ten minutes. */
        post: {
            parameters: {
                query?: never;
                header?: never;
                path: {
                    /** @description The code that the refusal names */
                    code: string;
                };
                cookie?: never;
            };
            requestBody: {
                content: {
                    "application/json": components["schemas"]["Approving"];
                };
            };
            responses: {
                /** @description In force and in the audit */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["RefusedCall"];
                    };
                };
            };
        };
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/approvals": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** The calls that wait for a person. */
        get: {
            parameters: {
                query?: never;
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                /** @description The longest waiting first */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Waiting"];
                    };
                };
            };
        };
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/approvals/{id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * One of them, or one that was decided a moment ago. With `wait`, the answer comes when it is
         *     decided, or when the time is up.
         */
        get: {
            parameters: {
                query?: {
                    /** @description Seconds to wait for a decision before answering. */
                    wait?: number;
                };
                header?: never;
                path: {
                    /** @description The approval */
                    id: string;
                };
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                /** @description As it is now */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Approval"];
                    };
                };
            };
        };
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/approvals/{id}/approve": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Lets a call pass that waits, if the person was shown all of it. */
        post: {
            parameters: {
                query?: never;
                header?: never;
                path: {
                    /** @description The approval */
                    id: string;
                };
                cookie?: never;
            };
            requestBody: {
                content: {
                    "application/json": components["schemas"]["Approving"];
                };
            };
            responses: {
                /** @description In force and in the audit */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Approval"];
                    };
                };
            };
        };
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/approvals/{id}/deny": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Refuses a call that waits. */
        post: {
            parameters: {
                query?: never;
                header?: never;
                path: {
                    /** @description The approval */
                    id: string;
                };
                cookie?: never;
            };
            requestBody: {
                content: {
                    "application/json": components["schemas"]["Because"];
                };
            };
            responses: {
                /** @description In force and in the audit */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Approval"];
                    };
                };
            };
        };
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/audit": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** The audit, the newest first. */
        get: {
            parameters: {
                query?: {
                    /** @description Only this kind of thing. */
                    action?: string;
                    /** @description Where to go on: `next` of the page before. */
                    cursor?: string;
                    /** @description Not before this time, in milliseconds since 1970. */
                    from?: number;
                    /** @description Entries on a page. */
                    limit?: number;
                    /** @description Only what was done to this. */
                    subject?: string;
                    /** @description Before this time, in milliseconds since 1970. */
                    to?: number;
                    /** @description Only what was done by this one. */
                    who?: string;
                };
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                /** @description A page of it */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Page_Entry"];
                    };
                };
            };
        };
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/audit/export": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** The whole audit, oldest first, one entry a line. */
        get: {
            parameters: {
                query?: never;
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                /** @description JSON, one entry a line */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/x-ndjson": components["schemas"]["Entry"];
                    };
                };
            };
        };
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/audit/verify": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Checks the chain from its first entry to its last. */
        get: {
            parameters: {
                query?: {
                    /** @description A head that was noted elsewhere, as SEQ:HASH: the chain must hold it. */
                    since?: string;
                };
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                /** @description What was found */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Chain"];
                    };
                };
            };
        };
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/backtest": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Tries a policy on stored sessions. */
        post: {
            parameters: {
                query?: never;
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody: {
                content: {
                    "application/json": components["schemas"]["Trial"];
                };
            };
            responses: {
                /** @description Lines of JSON */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/x-ndjson": components["schemas"]["TrialLine"];
                    };
                };
            };
        };
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/calls": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Calls, the newest first. */
        get: {
            parameters: {
                query?: {
                    /** @description Only this agent's. */
                    agent?: string;
                    /** @description Where to go on: `next` of the page before. */
                    cursor?: string;
                    /** @description Not before this time, in milliseconds since 1970. */
                    from?: number;
                    /** @description Only what this guard did. */
                    guard?: string;
                    /** @description Entries on a page. */
                    limit?: number;
                    /** @description Only requests to this model. */
                    model?: string;
                    /** @description Only those of the session with this number, also if its name was used again. */
                    number?: string;
                    /** @description Only this session's. */
                    session?: string;
                    /** @description Only those that ended so. */
                    status?: "ok" | "error" | "fault" | "cancelled";
                    /** @description Before this time, in milliseconds since 1970. */
                    to?: number;
                    /** @description Only calls of this tool. */
                    tool?: string;
                    /** @description Only those about which this was decided. */
                    verdict?: "allow" | "warn" | "steer" | "ask" | "block" | "kill";
                };
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                /** @description A page of them */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Page_Call"];
                    };
                };
            };
        };
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/calls/{id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** One call. */
        get: {
            parameters: {
                query?: never;
                header?: never;
                path: {
                    /** @description The call's id */
                    id: string;
                };
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                /** @description The call */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["CallDetail"];
                    };
                };
            };
        };
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/check": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** What Deadstop would say about a command or a tool call. Nothing is run, and nothing is recorded. */
        post: {
            parameters: {
                query?: never;
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody: {
                content: {
                    "application/json": components["schemas"]["CommandToTry"];
                };
            };
            responses: {
                /** @description What would be said */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Tried"];
                    };
                };
            };
        };
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/clear": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Lets an agent, or everything, run again. An agent that was killed gets a fresh key, if it has keys of
         *     its own; switching it on (`PATCH /api/agents/{name}`) keeps them.
         */
        post: {
            parameters: {
                query?: never;
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody: {
                content: {
                    "application/json": components["schemas"]["Order"];
                };
            };
            responses: {
                /** @description In force and on disk */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Done"];
                    };
                };
            };
        };
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/costs": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** What calls came to. */
        get: {
            parameters: {
                query?: {
                    /** @description Only this agent's. */
                    agent?: string;
                    /** @description What to add up by; by agent if it is left out. */
                    by?: "agent" | "model" | "day" | "hour";
                    /** @description Not before this time, in milliseconds since 1970. */
                    from?: number;
                    /** @description Only this model's. */
                    model?: string;
                    /** @description Before this time, in milliseconds since 1970. */
                    to?: number;
                };
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                /** @description The dearest first; days and hours in their order */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Page_Cost"];
                    };
                };
            };
        };
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/docs": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** The document as a page to read. */
        get: {
            parameters: {
                query?: never;
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                /** @description A page */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "text/html": string;
                    };
                };
            };
        };
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/events": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Events as they happen, and what a watcher missed that says what it saw last. */
        get: {
            parameters: {
                query?: never;
                header?: {
                    /** @description The last event that was seen */
                    "last-event-id"?: string | null;
                };
                path?: never;
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                /** @description Server-sent events */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "text/event-stream": string;
                    };
                };
            };
        };
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/incidents": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Incidents, the newest first. */
        get: {
            parameters: {
                query?: {
                    /** @description Only those that are about this: a tool, or the guard's code for why. */
                    about?: string;
                    /** @description Only acknowledged ones (true), or only those that are not (false). */
                    acknowledged?: boolean;
                    /** @description Only this agent's. */
                    agent?: string;
                    /** @description Where to go on: `next` of the page before. */
                    cursor?: string;
                    /** @description Not before this time, in milliseconds since 1970. */
                    from?: number;
                    /** @description Only what this guard did. */
                    guard?: string;
                    /** @description Entries on a page. */
                    limit?: number;
                    /** @description Only those of the session with this number, also if its name was used again. */
                    number?: string;
                    /** @description Only those with this code for why. */
                    reason?: string;
                    /** @description Only this session's. */
                    session?: string;
                    /** @description Only those that stand so. */
                    state?: "open" | "acknowledged" | "muted" | "resolved" | "unresolved";
                    /** @description Before this time, in milliseconds since 1970. */
                    to?: number;
                };
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                /** @description A page of them */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Page_Incident"];
                    };
                };
            };
        };
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/incidents/{id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** One incident. */
        get: {
            parameters: {
                query?: never;
                header?: never;
                path: {
                    /** @description The incident's id */
                    id: string;
                };
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                /** @description With its evidence */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["IncidentDetail"];
                    };
                };
            };
        };
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/incidents/{id}/acknowledge": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Acknowledges an incident. */
        post: {
            parameters: {
                query?: never;
                header?: never;
                path: {
                    /** @description The incident's id */
                    id: string;
                };
                cookie?: never;
            };
            requestBody: {
                content: {
                    "application/json": components["schemas"]["Acknowledgement"];
                };
            };
            responses: {
                /** @description The incident as it is now */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Incident"];
                    };
                };
            };
        };
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/incidents/{id}/exceptions": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** The exceptions that would have let an incident's call pass, each tried on the agent's last sessions. */
        get: {
            parameters: {
                query?: never;
                header?: never;
                path: {
                    /** @description The incident's id */
                    id: string;
                };
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                /** @description The narrowest first */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Proposed"];
                    };
                };
            };
        };
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/incidents/{id}/false-alarm": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Saves an exception as the next version of the agent's policy, and resolves the incident as a false
         *     alarm.
         */
        post: {
            parameters: {
                query?: never;
                header?: never;
                path: {
                    /** @description The incident's id */
                    id: string;
                };
                cookie?: never;
            };
            requestBody: {
                content: {
                    "application/json": components["schemas"]["FalseAlarm"];
                };
            };
            responses: {
                /** @description In force, and in the audit */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Excepted"];
                    };
                };
            };
        };
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/incidents/actions": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Does something about incidents: some by their ids, or all that are alike. */
        post: {
            parameters: {
                query?: never;
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody: {
                content: {
                    "application/json": components["schemas"]["IncidentOrder"];
                };
            };
            responses: {
                /** @description Done, and in the audit */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Acted"];
                    };
                };
            };
        };
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/incidents/groups": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Incidents by fingerprint, the group with the newest first. */
        get: {
            parameters: {
                query?: {
                    /** @description Only those that are about this: a tool, or the guard's code for why. */
                    about?: string;
                    /** @description Only acknowledged ones (true), or only those that are not (false). */
                    acknowledged?: boolean;
                    /** @description Only this agent's. */
                    agent?: string;
                    /** @description Where to go on: `next` of the page before. */
                    cursor?: string;
                    /** @description Not before this time, in milliseconds since 1970. */
                    from?: number;
                    /** @description Only what this guard did. */
                    guard?: string;
                    /** @description Entries on a page. */
                    limit?: number;
                    /** @description Only those of the session with this number, also if its name was used again. */
                    number?: string;
                    /** @description Only those with this code for why. */
                    reason?: string;
                    /** @description Only this session's. */
                    session?: string;
                    /** @description Only those that stand so. */
                    state?: "open" | "acknowledged" | "muted" | "resolved" | "unresolved";
                    /** @description Before this time, in milliseconds since 1970. */
                    to?: number;
                };
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                /** @description A page of them */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Page_Group"];
                    };
                };
            };
        };
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/incidents/mutes": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** What is muted now. */
        get: {
            parameters: {
                query?: never;
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                /** @description All of them */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Page_Muted"];
                    };
                };
            };
        };
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/keys": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** The keys of the project. */
        get: {
            parameters: {
                query?: never;
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                /** @description All of them, revoked ones too */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Page_Key"];
                    };
                };
            };
        };
        put?: never;
        /** Makes a key. */
        post: {
            parameters: {
                query?: never;
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody: {
                content: {
                    "application/json": components["schemas"]["KeyOrder"];
                };
            };
            responses: {
                /** @description The key, shown this once */
                201: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["MadeKey"];
                    };
                };
            };
        };
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/keys/{id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post?: never;
        /** Takes a key out of force, at once. */
        delete: {
            parameters: {
                query?: never;
                header?: never;
                path: {
                    /** @description The key's id */
                    id: string;
                };
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                /** @description No longer in force */
                204: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content?: never;
                };
            };
        };
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/kill": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Ends a session, an agent or everything. */
        post: {
            parameters: {
                query?: never;
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody: {
                content: {
                    "application/json": components["schemas"]["Order"];
                };
            };
            responses: {
                /** @description In force and on disk */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Done"];
                    };
                };
            };
        };
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/login": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Opens a login with a key, or with a sign-in link. */
        post: {
            parameters: {
                query?: never;
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody: {
                content: {
                    "application/json": components["schemas"]["Credentials"];
                };
            };
            responses: {
                /** @description Sets the login's cookie */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Identity"];
                    };
                };
            };
        };
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/logout": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Ends a login. */
        post: {
            parameters: {
                query?: never;
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                /** @description The login is over */
                204: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content?: never;
                };
            };
        };
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/mcp/tools": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** The tools that were seen. */
        get: {
            parameters: {
                query?: {
                    /** @description Those of one server. */
                    server?: string;
                };
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                /** @description All of them */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Tools"];
                    };
                };
            };
        };
        put?: never;
        /** Tells of a listing. */
        post: {
            parameters: {
                query?: never;
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody: {
                content: {
                    "application/json": components["schemas"]["Seen"];
                };
            };
            responses: {
                /** @description What to make of it */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Judged"];
                    };
                };
            };
        };
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/mcp/tools/accept": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Accepts a tool as it is described now. */
        post: {
            parameters: {
                query?: never;
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody: {
                content: {
                    "application/json": components["schemas"]["Acceptance"];
                };
            };
            responses: {
                /** @description Accepted */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Tool"];
                    };
                };
            };
        };
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/openapi.json": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** The document. */
        get: {
            parameters: {
                query?: never;
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                /** @description OpenAPI 3.1 */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": unknown;
                    };
                };
            };
        };
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/pause": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Holds the next call until a person decides. */
        post: {
            parameters: {
                query?: never;
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody: {
                content: {
                    "application/json": components["schemas"]["Order"];
                };
            };
            responses: {
                /** @description In force and on disk */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Done"];
                    };
                };
            };
        };
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/policies": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** All documents of the project. */
        get: {
            parameters: {
                query?: never;
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                /** @description The default first, then by agent */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Page_Listed"];
                    };
                };
            };
        };
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/policies/agents/{name}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** What an agent has of its own, and the policy in force for it. */
        get: {
            parameters: {
                query?: never;
                header?: never;
                path: {
                    /** @description The agent */
                    name: string;
                };
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                /** @description With its ETag */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Document"];
                    };
                };
            };
        };
        /** Replaces what an agent has of its own. */
        put: {
            parameters: {
                query?: {
                    /** @description Why; kept with the version. */
                    reason?: string;
                };
                header: {
                    /** @description The ETag of what it replaces; "0" for nothing */
                    "if-match": string;
                };
                path: {
                    /** @description The agent; it need not have been heard of yet */
                    name: string;
                };
                cookie?: never;
            };
            requestBody: {
                content: {
                    "application/json": components["schemas"]["AgentPolicy"];
                };
            };
            responses: {
                /** @description In force */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Document"];
                    };
                };
            };
        };
        post?: never;
        /** Takes an agent back to the project's default. */
        delete: {
            parameters: {
                query?: {
                    /** @description Why; kept with the version. */
                    reason?: string;
                };
                header?: {
                    /** @description The ETag of what it replaces */
                    "if-match"?: string | null;
                };
                path: {
                    /** @description The agent */
                    name: string;
                };
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                /** @description In force */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Document"];
                    };
                };
            };
        };
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/policies/agents/{name}/diff": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** What is different between two versions of what an agent has of its own. */
        get: {
            parameters: {
                query?: {
                    /** @description The earlier version; the one before `to` if it is left out. 0 means no policy. */
                    from?: number;
                    /** @description The later one; the current one if it is left out. */
                    to?: number;
                };
                header?: never;
                path: {
                    /** @description The agent */
                    name: string;
                };
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                /** @description Setting by setting */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Difference"];
                    };
                };
            };
        };
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/policies/agents/{name}/versions": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** The versions of what an agent has of its own. */
        get: {
            parameters: {
                query?: {
                    /** @description Where to go on: `next` of the page before. */
                    cursor?: string;
                    /** @description Entries on a page. */
                    limit?: number;
                };
                header?: never;
                path: {
                    /** @description The agent */
                    name: string;
                };
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                /** @description The newest first */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Page_Listed"];
                    };
                };
            };
        };
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/policies/agents/{name}/versions/{version}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** One version of what an agent has of its own. */
        get: {
            parameters: {
                query?: never;
                header?: never;
                path: {
                    /** @description The agent */
                    name: string;
                    /** @description Which */
                    version: number;
                };
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                /** @description With its document */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Version"];
                    };
                };
            };
        };
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/policies/agents/{name}/versions/{version}/restore": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Puts a version of what an agent has of its own into force again, as the newest. */
        post: {
            parameters: {
                query?: never;
                header?: {
                    /** @description The ETag of what it replaces */
                    "if-match"?: string | null;
                };
                path: {
                    /** @description The agent */
                    name: string;
                    /** @description Which */
                    version: number;
                };
                cookie?: never;
            };
            requestBody: {
                content: {
                    "application/json": components["schemas"]["Why"];
                };
            };
            responses: {
                /** @description In force */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Document"];
                    };
                };
            };
        };
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/policies/default": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** The project's default policy. */
        get: {
            parameters: {
                query?: never;
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                /** @description With its ETag */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Document"];
                    };
                };
            };
        };
        /** Replaces the project's default policy. */
        put: {
            parameters: {
                query?: {
                    /** @description Why; kept with the version. */
                    reason?: string;
                };
                header: {
                    /** @description The ETag of what it replaces */
                    "if-match": string;
                };
                path?: never;
                cookie?: never;
            };
            requestBody: {
                content: {
                    "application/json": components["schemas"]["WholePolicy"];
                };
            };
            responses: {
                /** @description In force */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Document"];
                    };
                };
            };
        };
        post?: never;
        /** Goes back to the policy that the server was started with. */
        delete: {
            parameters: {
                query?: {
                    /** @description Why; kept with the version. */
                    reason?: string;
                };
                header?: {
                    /** @description The ETag of what it replaces */
                    "if-match"?: string | null;
                };
                path?: never;
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                /** @description In force */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Document"];
                    };
                };
            };
        };
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/policies/default/diff": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** What is different between two versions of the default. */
        get: {
            parameters: {
                query?: {
                    /** @description The earlier version; the one before `to` if it is left out. 0 means no policy. */
                    from?: number;
                    /** @description The later one; the current one if it is left out. */
                    to?: number;
                };
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                /** @description Setting by setting */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Difference"];
                    };
                };
            };
        };
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/policies/default/versions": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** The versions of the default. */
        get: {
            parameters: {
                query?: {
                    /** @description Where to go on: `next` of the page before. */
                    cursor?: string;
                    /** @description Entries on a page. */
                    limit?: number;
                };
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                /** @description The newest first */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Page_Listed"];
                    };
                };
            };
        };
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/policies/default/versions/{version}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** One version of the default. */
        get: {
            parameters: {
                query?: never;
                header?: never;
                path: {
                    /** @description Which */
                    version: number;
                };
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                /** @description With its document */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Version"];
                    };
                };
            };
        };
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/policies/default/versions/{version}/restore": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Puts a version of the default into force again, as the newest. */
        post: {
            parameters: {
                query?: never;
                header?: {
                    /** @description The ETag of what it replaces */
                    "if-match"?: string | null;
                };
                path: {
                    /** @description Which */
                    version: number;
                };
                cookie?: never;
            };
            requestBody: {
                content: {
                    "application/json": components["schemas"]["Why"];
                };
            };
            responses: {
                /** @description In force */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Document"];
                    };
                };
            };
        };
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/presets": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Ready-made settings to start from. */
        get: {
            parameters: {
                query?: never;
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                /** @description The same for every project */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Presets"];
                    };
                };
            };
        };
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/prices": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Prices: own ones, and those of the models that were used. */
        get: {
            parameters: {
                query?: {
                    /** @description Only what this model costs, whether it was used or not. */
                    model?: string;
                };
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                /** @description In force */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["PriceList"];
                    };
                };
            };
        };
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/prices/{name}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** An own price. */
        get: {
            parameters: {
                query?: never;
                header?: never;
                path: {
                    /** @description The model */
                    name: string;
                };
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                /** @description In force */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["PriceLine"];
                    };
                };
            };
        };
        /**
         * Sets an own price: in force for the next call of the model, and of those whose names go on after
         *     this one.
         */
        put: {
            parameters: {
                query?: never;
                header?: never;
                path: {
                    /** @description The model */
                    name: string;
                };
                cookie?: never;
            };
            requestBody: {
                content: {
                    "application/json": components["schemas"]["OwnPrice"];
                };
            };
            responses: {
                /** @description In force */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["PriceLine"];
                    };
                };
            };
        };
        post?: never;
        /** Goes back to the catalogue's price. */
        delete: {
            parameters: {
                query?: never;
                header?: never;
                path: {
                    /** @description The model */
                    name: string;
                };
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                /** @description In force */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["PriceLine"];
                    };
                };
            };
        };
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/projects": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** The projects that you may see. */
        get: {
            parameters: {
                query?: never;
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                /** @description Your own; all of them for the local user */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Page_Project"];
                    };
                };
            };
        };
        put?: never;
        /**
         * Makes a project. On a server with keys the answer holds the project's first admin key: the
         *     caller's own key has no access to it.
         */
        post: {
            parameters: {
                query?: never;
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody: {
                content: {
                    "application/json": components["schemas"]["ProjectOrder"];
                };
            };
            responses: {
                /** @description The project */
                201: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["MadeProject"];
                    };
                };
            };
        };
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/projects/prevention-config": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** The project's guards, for every agent that has none of its own. */
        get: {
            parameters: {
                query?: never;
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                /** @description In force */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Prevention"];
                    };
                };
            };
        };
        /** Sets the project's guards. */
        put: {
            parameters: {
                query?: never;
                header?: {
                    /** @description The ETag of what it replaces */
                    "if-match"?: string | null;
                };
                path?: never;
                cookie?: never;
            };
            requestBody: {
                content: {
                    "application/json": components["schemas"]["PreventionConfig"];
                };
            };
            responses: {
                /** @description In force */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Prevention"];
                    };
                };
            };
        };
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/reset": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** A fresh start under the same name, for a session that was ended. */
        post: {
            parameters: {
                query?: never;
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody: {
                content: {
                    "application/json": components["schemas"]["Order"];
                };
            };
            responses: {
                /** @description In force and on disk */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Done"];
                    };
                };
            };
        };
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/resume": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Ends a hold. */
        post: {
            parameters: {
                query?: never;
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody: {
                content: {
                    "application/json": components["schemas"]["Order"];
                };
            };
            responses: {
                /** @description In force and on disk */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Done"];
                    };
                };
            };
        };
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/sessions": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Sessions, the one opened last first.
         * @description With `state`, a page may have fewer entries than asked for, and `next` all the same.
         */
        get: {
            parameters: {
                query?: {
                    /** @description Only this agent's. */
                    agent?: string;
                    /** @description Where to go on: `next` of the page before. */
                    cursor?: string;
                    /** @description Not before this time, in milliseconds since 1970. */
                    from?: number;
                    /** @description Only what this guard did. */
                    guard?: string;
                    /** @description Entries on a page. */
                    limit?: number;
                    /** @description Only this session's. */
                    session?: string;
                    /** @description Only those that stand so. */
                    state?: "running" | "waiting" | "waiting_for_approval" | "paused" | "idle" | "finished" | "stopped" | "stopped_by_guard" | "stopped_by_person" | "killed" | "ended";
                    /** @description Only those with this health tag. */
                    tag?: string;
                    /** @description Before this time, in milliseconds since 1970. */
                    to?: number;
                };
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                /** @description A page of them */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Page_Session"];
                    };
                };
            };
        };
        put?: never;
        /**
         * Opens a session, or a nested scope in it. May be repeated: a person's words, a compaction or the
         *     beginning and end of a sub-agent are told this way, too.
         */
        post: {
            parameters: {
                query?: never;
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody: {
                content: {
                    "application/json": components["schemas"]["Opening"];
                };
            };
            responses: {
                /** @description It is open */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Opened"];
                    };
                };
            };
        };
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/sessions/{agent}/{session}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** One session: the one of this name that was opened last, or an earlier one by its number. */
        get: {
            parameters: {
                query?: {
                    /** @description The session's number. Without it, the session of that name that was opened last. */
                    number?: string;
                };
                header?: never;
                path: {
                    /** @description The agent */
                    agent: string;
                    /** @description The session's name */
                    session: string;
                };
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                /** @description The session */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["SessionDetail"];
                    };
                };
            };
        };
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/sessions/{agent}/{session}/calls": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** A session's calls as a timeline. */
        get: {
            parameters: {
                query?: {
                    /** @description Where to go on: `next` of the page before. */
                    cursor?: string;
                    /** @description Not before this time, in milliseconds since 1970. */
                    from?: number;
                    /** @description Only calls at which this guard tripped. */
                    guard?: string;
                    /** @description Entries on a page. */
                    limit?: number;
                    /** @description The session's number. Without it, the session of that name that was opened last. */
                    number?: string;
                    /** @description `oldest` (as it happened) or `newest` first. */
                    order?: "oldest" | "newest";
                    /** @description Before this time, in milliseconds since 1970. */
                    to?: number;
                };
                header?: never;
                path: {
                    /** @description The agent */
                    agent: string;
                    /** @description The session's name */
                    session: string;
                };
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                /** @description A page of them */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Page_Call"];
                    };
                };
            };
        };
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/sessions/{agent}/{session}/calls/{id}/state": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** A session as it stood at one of its calls: its stored facts, run through the guards again. */
        get: {
            parameters: {
                query?: never;
                header?: never;
                path: {
                    /** @description The agent */
                    agent: string;
                    /** @description The call's id */
                    id: string;
                    /** @description The session's name */
                    session: string;
                };
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                /** @description As it stood then */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Stood"];
                    };
                };
            };
        };
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/sessions/{agent}/{session}/follow": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** How a session stands: at once if it is not what the follower knows, or else when it changes. */
        get: {
            parameters: {
                query?: {
                    /** @description The version that the follower got last; without it the answer comes at once. */
                    after?: string;
                };
                header?: never;
                path: {
                    /** @description The agent */
                    agent: string;
                    /** @description The session */
                    session: string;
                };
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                /** @description How it stands */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Standing"];
                    };
                };
            };
        };
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/sessions/{agent}/{session}/grants": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** The grants of a session. */
        get: {
            parameters: {
                query?: never;
                header?: never;
                path: {
                    /** @description The agent */
                    agent: string;
                    /** @description The session */
                    session: string;
                };
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                /** @description Those in force */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Given"];
                    };
                };
            };
        };
        put?: never;
        /** Gives a session a grant. */
        post: {
            parameters: {
                query?: never;
                header?: never;
                path: {
                    /** @description The agent */
                    agent: string;
                    /** @description The session */
                    session: string;
                };
                cookie?: never;
            };
            requestBody: {
                content: {
                    "application/json": components["schemas"]["NewGrant"];
                };
            };
            responses: {
                /** @description In force and on disk */
                201: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Grant"];
                    };
                };
            };
        };
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/sessions/{agent}/{session}/grants/{id}/revoke": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Takes a grant of a session back. */
        post: {
            parameters: {
                query?: never;
                header?: never;
                path: {
                    /** @description The agent */
                    agent: string;
                    /** @description The grant */
                    id: string;
                    /** @description The session */
                    session: string;
                };
                cookie?: never;
            };
            requestBody: {
                content: {
                    "application/json": components["schemas"]["Because"];
                };
            };
            responses: {
                /** @description As it was */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Grant"];
                    };
                };
            };
        };
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/sessions/{agent}/{session}/kill": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Ends a session, for good. */
        post: {
            parameters: {
                query?: never;
                header?: never;
                path: {
                    /** @description The agent */
                    agent: string;
                    /** @description The session's name */
                    session: string;
                };
                cookie?: never;
            };
            requestBody: {
                content: {
                    "application/json": components["schemas"]["Why"];
                };
            };
            responses: {
                /** @description In force and on disk */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Done"];
                    };
                };
            };
        };
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/sessions/{agent}/{session}/pause": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Holds a session's next call until a person decides. */
        post: {
            parameters: {
                query?: never;
                header?: never;
                path: {
                    /** @description The agent */
                    agent: string;
                    /** @description The session's name */
                    session: string;
                };
                cookie?: never;
            };
            requestBody: {
                content: {
                    "application/json": components["schemas"]["Why"];
                };
            };
            responses: {
                /** @description In force and on disk */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Done"];
                    };
                };
            };
        };
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/sessions/{agent}/{session}/preflight": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** May this model call be made? */
        post: {
            parameters: {
                query?: never;
                header?: never;
                path: {
                    /** @description The agent */
                    agent: string;
                    /** @description The session */
                    session: string;
                };
                cookie?: never;
            };
            requestBody: {
                content: {
                    "application/json": components["schemas"]["Preflight"];
                };
            };
            responses: {
                /** @description It may */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Decided"];
                    };
                };
            };
        };
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/sessions/{agent}/{session}/progress": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** May this call go on? */
        post: {
            parameters: {
                query?: never;
                header?: never;
                path: {
                    /** @description The agent */
                    agent: string;
                    /** @description The session */
                    session: string;
                };
                cookie?: never;
            };
            requestBody: {
                content: {
                    "application/json": components["schemas"]["Report"];
                };
            };
            responses: {
                /** @description It may */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Decided"];
                    };
                };
            };
        };
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/sessions/{agent}/{session}/proposal": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** May these tool calls be made? Each is decided by itself, in order. */
        post: {
            parameters: {
                query?: never;
                header?: never;
                path: {
                    /** @description The agent */
                    agent: string;
                    /** @description The session */
                    session: string;
                };
                cookie?: never;
            };
            requestBody: {
                content: {
                    "application/json": components["schemas"]["Proposal"];
                };
            };
            responses: {
                /** @description What was decided about each */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["DecidedAll"];
                    };
                };
            };
        };
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/sessions/{agent}/{session}/receipt": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** This call has ended. What it cost is on disk when this is answered. */
        post: {
            parameters: {
                query?: never;
                header?: never;
                path: {
                    /** @description The agent */
                    agent: string;
                    /** @description The session */
                    session: string;
                };
                cookie?: never;
            };
            requestBody: {
                content: {
                    "application/json": components["schemas"]["Receipt"];
                };
            };
            responses: {
                /** @description It is booked */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Decided"];
                    };
                };
            };
        };
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/sessions/{agent}/{session}/reset": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** A fresh start under the same name. */
        post: {
            parameters: {
                query?: never;
                header?: never;
                path: {
                    /** @description The agent */
                    agent: string;
                    /** @description The session's name */
                    session: string;
                };
                cookie?: never;
            };
            requestBody: {
                content: {
                    "application/json": components["schemas"]["Why"];
                };
            };
            responses: {
                /** @description In force and on disk */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Done"];
                    };
                };
            };
        };
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/sessions/{agent}/{session}/resume": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Ends a hold. */
        post: {
            parameters: {
                query?: never;
                header?: never;
                path: {
                    /** @description The agent */
                    agent: string;
                    /** @description The session's name */
                    session: string;
                };
                cookie?: never;
            };
            requestBody: {
                content: {
                    "application/json": components["schemas"]["Why"];
                };
            };
            responses: {
                /** @description In force and on disk */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Done"];
                    };
                };
            };
        };
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/sessions/{agent}/{session}/top-up": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Raises the limits of a session. If one of them ended it, it goes on; a stop by a person is final. */
        post: {
            parameters: {
                query?: never;
                header?: never;
                path: {
                    /** @description The agent */
                    agent: string;
                    /** @description The session's name */
                    session: string;
                };
                cookie?: never;
            };
            requestBody: {
                content: {
                    "application/json": components["schemas"]["TopUp"];
                };
            };
            responses: {
                /** @description In force and on disk */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Done"];
                    };
                };
            };
        };
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/settings": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** The settings of the project. */
        get: {
            parameters: {
                query?: never;
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                /** @description In force */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Settings"];
                    };
                };
            };
        };
        /** Replaces the settings of the project. */
        put: {
            parameters: {
                query?: never;
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody: {
                content: {
                    "application/json": components["schemas"]["Settings"];
                };
            };
            responses: {
                /** @description In force */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Settings"];
                    };
                };
            };
        };
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/speed": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** How fast models answered and how often they failed, from stored calls. */
        get: {
            parameters: {
                query?: {
                    /** @description Only this agent's. */
                    agent?: string;
                    /** @description What they are told apart by; by model if it is left out. */
                    by?: "model" | "provider";
                    /** @description Not before this time, in milliseconds since 1970. */
                    from?: number;
                    /** @description Before this time, in milliseconds since 1970. */
                    to?: number;
                };
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                /** @description The one with the most calls first */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Page_SpeedLine"];
                    };
                };
            };
        };
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/spend": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * What was spent over time. Steps in which nothing was spent are left out. Without `from`, the last
         *     60 steps.
         */
        get: {
            parameters: {
                query?: {
                    /** @description Only this agent's. */
                    agent?: string;
                    /** @description What the series is split by; not at all if it is left out. */
                    by?: "total" | "agent" | "model";
                    /** @description Not before this time, in milliseconds since 1970. */
                    from?: number;
                    /** @description Only this model's. */
                    model?: string;
                    /** @description How wide the steps are; a minute if it is left out. */
                    step?: "10s" | "minute" | "hour" | "day";
                    /** @description Before this time, in milliseconds since 1970. */
                    to?: number;
                };
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                /** @description Steps in their order, the dearest line of a step first */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Page_Spent"];
                    };
                };
            };
        };
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/sso": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Whether people can sign in through an OpenID provider. */
        get: {
            parameters: {
                query?: never;
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                /** @description Whether they can */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["SignOn"];
                    };
                };
            };
        };
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/sso/callback": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Ends a sign-in: the browser comes back from the OpenID provider. */
        get: {
            parameters: {
                query?: {
                    /** @description What the provider gives for a token */
                    code?: string;
                    /** @description Why there is no code */
                    error?: string;
                    /** @description What the sign-in began with */
                    state?: string;
                };
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                /** @description To the page, with a login's cookie if it is one */
                303: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content?: never;
                };
            };
        };
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/sso/login": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Sends a browser to the OpenID provider. */
        get: {
            parameters: {
                query?: never;
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                /** @description To the provider, or back to the page where that fails */
                303: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content?: never;
                };
            };
        };
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/status": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** What runs now. */
        get: {
            parameters: {
                query?: {
                    /** @description Only this agent and what is below it. */
                    agent?: string;
                    /** @description Where to go on: `next` of the page before. */
                    cursor?: string;
                    /** @description Only scopes of this kind. */
                    kind?: "agent" | "session" | "nested";
                    /** @description Scopes on a page. */
                    limit?: number;
                    /** @description How many limits each scope is listed with, the nearest first; all if it is left out. */
                    limits?: number;
                    /** @description Only those whose names have this in them; case does not matter. */
                    name?: string;
                    /** @description The last used first, or the nearest to a limit first. */
                    order?: "used" | "danger";
                    /** @description Only those that stand so. */
                    state?: "running" | "paused" | "killed" | "alive";
                    /** @description Only those that were used at this time or later, in milliseconds since 1970, or run now. */
                    used_since?: number;
                };
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                /** @description Scopes in memory */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Status"];
                    };
                };
            };
        };
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/whoami": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Who is asking. */
        get: {
            parameters: {
                query?: never;
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                /** @description You */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Identity"];
                    };
                };
            };
        };
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/healthz": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Whether the server is alive. */
        get: {
            parameters: {
                query?: never;
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                /** @description It is */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "text/plain": string;
                    };
                };
            };
        };
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/metrics": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Counters for Prometheus. Series with agents and models are those of the caller's project. OpenMetrics,
         *     with exemplars, where the client accepts it.
         */
        get: {
            parameters: {
                query?: never;
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                /** @description Prometheus' text format */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "text/plain": string;
                    };
                };
            };
        };
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/readyz": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Whether the server can do its work. */
        get: {
            parameters: {
                query?: never;
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                /** @description It can */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Readiness"];
                    };
                };
            };
        };
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/logs": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Takes in log records: the events of Claude Code and Gemini CLI. */
        post: {
            parameters: {
                query?: never;
                header?: never;
                path?: never;
                cookie?: never;
            };
            /** @description An OTLP `ExportLogsServiceRequest` */
            requestBody: {
                content: {
                    "application/json": unknown;
                    "application/x-protobuf": unknown;
                };
            };
            responses: {
                /** @description Taken in; the answer names what was not */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content?: never;
                };
            };
        };
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/metrics": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Accepts metrics, so that an exporter of all three signals works. They tell of no single call. */
        post: {
            parameters: {
                query?: never;
                header?: never;
                path?: never;
                cookie?: never;
            };
            /** @description An OTLP `ExportMetricsServiceRequest` */
            requestBody: {
                content: {
                    "application/json": unknown;
                    "application/x-protobuf": unknown;
                };
            };
            responses: {
                /** @description Read, and not kept */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content?: never;
                };
            };
        };
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/traces": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Takes in spans. */
        post: {
            parameters: {
                query?: never;
                header?: never;
                path?: never;
                cookie?: never;
            };
            /** @description An OTLP `ExportTraceServiceRequest` */
            requestBody: {
                content: {
                    "application/json": unknown;
                    "application/x-protobuf": unknown;
                };
            };
            responses: {
                /** @description Taken in; the answer names what was not */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content?: never;
                };
            };
        };
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
}
export type webhooks = Record<string, never>;
export interface components {
    schemas: {
        /** @description A changed tool that an operator accepts. */
        Acceptance: {
            /** @description The person who says so, where a client speaks for several. */
            by?: string | null;
            /** @description Why. */
            reason?: string;
            /** @description The server. */
            server: string;
            /** @description The tool. */
            tool: string;
        };
        /** @description An incident's acknowledgement. */
        Acknowledgement: {
            /** @description The person, where a client speaks for several. */
            by?: string | null;
            /** @description What they have to say. */
            note: string;
        };
        /** @description What was done. */
        Acted: {
            /** @description The incidents as they are now, in the order of their ids. */
            incidents: components["schemas"]["Incident"][];
            /** @description Ids of no incident. */
            missing: string[];
        };
        /** @description How many calls were made in one step. */
        Activity: {
            /**
             * Format: int64
             * @description The first millisecond of the step.
             */
            at_ms: number;
            /**
             * Format: int64
             * @description Calls of models and tools, also those that were refused.
             */
            calls: number;
            /**
             * Format: int64
             * @description Those that failed: of the provider, the tool or the caller.
             */
            failed: number;
            /**
             * Format: int64
             * @description Those that were refused or cut.
             */
            refused: number;
        };
        /** @description An address to send to. */
        Address: {
            /** @description What it is signed with; made here if it is left out. */
            secret?: string | null;
            /** @enum {string} */
            type: "webhook";
            /** @description Where to. */
            url: string;
        } | {
            /** @enum {string} */
            type: "slack";
            /** @description Where to. */
            url: string;
        } | {
            /** @description From whom. */
            from: string;
            /** @description `smtps://user:password@host:port`, `smtp+starttls://…` or `smtp://…`. */
            smtp: string;
            /** @description To whom: one address, or several with commas between. */
            to: string;
            /** @enum {string} */
            type: "email";
        };
        /** @description An agent. */
        Agent: components["schemas"]["Totals"] & {
            /** @description Whether it may run. */
            active: boolean;
            /** @description Who switched it off: `kill_switch`, another guard, or a person. */
            deactivated_by: string | null;
            /**
             * Format: int64
             * @description When.
             */
            deactivated_ms: number | null;
            /** @description The providers and tool servers that fail, so that their calls are refused for a while. */
            failing?: components["schemas"]["FailingServer"][];
            /** @description `ok`, `warning` (incidents or loops in the last 24 hours), `paused` or `stopped`. */
            health: string;
            /** @description Its name. */
            name: string;
            /**
             * Format: int64
             * @description When it was first heard of.
             */
            opened_ms: number;
            /** @description The windows that its providers have reported and that have not begun anew, the fullest first. */
            quotas: components["schemas"]["Quota"][];
            /**
             * Format: int64
             * @description When an operator removed it; null if it is listed.
             */
            removed_ms: number | null;
            /** @description What people have tagged it with. */
            tags: string[];
            /**
             * Format: int64
             * @description When it last did something.
             */
            used_ms: number;
            /** @description Why, in a sentence. */
            why: string | null;
        };
        /** @description What to change about an agent. */
        AgentChange: {
            /** @description Switches it on or off. Switched on, its windows are empty and its next call runs. */
            active?: boolean | null;
            /** @description The person who says so, where a client speaks for several. */
            by?: string | null;
            /** @description Why. */
            reason?: string;
            /** @description Replaces its tags. */
            tags?: string[] | null;
        };
        /** @description How many agents there are, and how they are. */
        AgentHealth: {
            /** @description All that lists name. */
            agents: number;
            /** @description Those with nothing to look at. */
            ok: number;
            /** @description Those that are paused. */
            paused: number;
            /** @description Those that are stopped. */
            stopped: number;
            /** @description Those with incidents or loops in the last 24 hours. */
            warning: number;
        };
        AgentPolicy: {
            kill_switch: null | components["schemas"]["KillSwitch"];
            policy: null | {
                access: {
                    action: string;
                    allow: unknown[];
                    ask: unknown[];
                    deny: unknown[];
                    pin_tools: string;
                    rules: unknown[];
                };
                agent: {
                    access: {
                        action: string;
                        allow: unknown[];
                        ask: unknown[];
                        deny: unknown[];
                        pin_tools: string;
                        rules: unknown[];
                    };
                    ask_timeout_s: number;
                    breaker: {
                        action: string;
                        cooldown_seconds: number;
                        enabled: boolean;
                        half_open_max_calls: number;
                        open_after_failures: number;
                    };
                    budget: {
                        action: string;
                        ceiling_share: number;
                        max_cost_usd: number | null;
                        per: string;
                        reservation: string;
                        soft_alert_threshold_usd: number | null;
                        tool_prices: Record<string, never>;
                        wait_s: number;
                    };
                    destructive: {
                        action: string;
                        enabled: boolean;
                        ends: string;
                        exempt_targets: unknown[];
                        max_deletes: number;
                        max_same_target: number;
                        window_s: number;
                    };
                    ending: {
                        reserve_for_answer: string;
                        wrap_up_at: string;
                    };
                    fail_mode: string;
                    harm: {
                        allow: unknown[];
                        catastrophic: string;
                        enabled: boolean;
                        recoverable: string;
                        secrets: string;
                        serious: string;
                        unknown: string;
                        unreadable: string;
                    };
                    loop: {
                        action: string;
                        block_at: (number | null) | "off";
                        enabled: boolean;
                        end_at: (number | null) | "off";
                        ends: string;
                        max_wait_s: number;
                        steer_at: (number | null) | "off";
                        threshold: number;
                        tools: Record<string, never>;
                    };
                    mode: string;
                    offline_calls: number;
                    quota: {
                        action: string;
                        max_used: string;
                    };
                    similarity: {
                        action: string;
                        enabled: boolean;
                        ends: string;
                        prompt_weight: number;
                        response_weight: number;
                        threshold: number;
                        tool_call_weight: number;
                        window_size: number;
                    };
                    steps: {
                        action: string;
                        max_model_calls: number | null;
                        max_steps: number | null;
                    };
                    strikes: {
                        action: string;
                        consecutive_blocks: number;
                        consecutive_errors: number;
                        enabled: boolean;
                        provider_errors: boolean;
                    };
                    swarm: {
                        action: string;
                        max_agents: number | null;
                        max_depth: number | null;
                        max_parallel: number | null;
                        max_spawns_per_minute: number | null;
                    };
                    text_loop: {
                        action: string;
                        enabled: boolean;
                        end_at: (number | null) | "off";
                        ends: string;
                        max_repeated_answers: number;
                        steer_at: (number | null) | "off";
                    };
                    time: {
                        action: string;
                        max_wall_time_seconds: number | null;
                    };
                    tokens: {
                        action: string;
                        input_token_limit: number | null;
                        output_token_limit: number | null;
                        total_token_limit: number | null;
                    };
                    velocity: {
                        action: string;
                        max_tokens_per_minute: number | null;
                        max_usd_per_minute: number | null;
                    };
                };
                ask_timeout_s: number;
                budget: {
                    action: string;
                    ceiling_share: number;
                    max_cost_usd: number | null;
                    per: string;
                    reservation: string;
                    soft_alert_threshold_usd: number | null;
                    tool_prices: Record<string, never>;
                    wait_s: number;
                };
                destructive: {
                    action: string;
                    enabled: boolean;
                    ends: string;
                    exempt_targets: unknown[];
                    max_deletes: number;
                    max_same_target: number;
                    window_s: number;
                };
                ending: {
                    reserve_for_answer: string;
                    wrap_up_at: string;
                };
                fail_mode: string;
                harm: {
                    allow: unknown[];
                    catastrophic: string;
                    enabled: boolean;
                    recoverable: string;
                    secrets: string;
                    serious: string;
                    unknown: string;
                    unreadable: string;
                };
                loop: {
                    action: string;
                    block_at: (number | null) | "off";
                    enabled: boolean;
                    end_at: (number | null) | "off";
                    ends: string;
                    max_wait_s: number;
                    steer_at: (number | null) | "off";
                    threshold: number;
                    tools: Record<string, never>;
                };
                mode: string;
                nested: {
                    access: {
                        action: string;
                        allow: unknown[];
                        ask: unknown[];
                        deny: unknown[];
                        pin_tools: string;
                        rules: unknown[];
                    };
                    ask_timeout_s: number;
                    breaker: {
                        action: string;
                        cooldown_seconds: number;
                        enabled: boolean;
                        half_open_max_calls: number;
                        open_after_failures: number;
                    };
                    budget: {
                        action: string;
                        ceiling_share: number;
                        max_cost_usd: number | null;
                        per: string;
                        reservation: string;
                        soft_alert_threshold_usd: number | null;
                        tool_prices: Record<string, never>;
                        wait_s: number;
                    };
                    destructive: {
                        action: string;
                        enabled: boolean;
                        ends: string;
                        exempt_targets: unknown[];
                        max_deletes: number;
                        max_same_target: number;
                        window_s: number;
                    };
                    ending: {
                        reserve_for_answer: string;
                        wrap_up_at: string;
                    };
                    fail_mode: string;
                    harm: {
                        allow: unknown[];
                        catastrophic: string;
                        enabled: boolean;
                        recoverable: string;
                        secrets: string;
                        serious: string;
                        unknown: string;
                        unreadable: string;
                    };
                    loop: {
                        action: string;
                        block_at: (number | null) | "off";
                        enabled: boolean;
                        end_at: (number | null) | "off";
                        ends: string;
                        max_wait_s: number;
                        steer_at: (number | null) | "off";
                        threshold: number;
                        tools: Record<string, never>;
                    };
                    mode: string;
                    offline_calls: number;
                    quota: {
                        action: string;
                        max_used: string;
                    };
                    similarity: {
                        action: string;
                        enabled: boolean;
                        ends: string;
                        prompt_weight: number;
                        response_weight: number;
                        threshold: number;
                        tool_call_weight: number;
                        window_size: number;
                    };
                    steps: {
                        action: string;
                        max_model_calls: number | null;
                        max_steps: number | null;
                    };
                    strikes: {
                        action: string;
                        consecutive_blocks: number;
                        consecutive_errors: number;
                        enabled: boolean;
                        provider_errors: boolean;
                    };
                    swarm: {
                        action: string;
                        max_agents: number | null;
                        max_depth: number | null;
                        max_parallel: number | null;
                        max_spawns_per_minute: number | null;
                    };
                    text_loop: {
                        action: string;
                        enabled: boolean;
                        end_at: (number | null) | "off";
                        ends: string;
                        max_repeated_answers: number;
                        steer_at: (number | null) | "off";
                    };
                    time: {
                        action: string;
                        max_wall_time_seconds: number | null;
                    };
                    tokens: {
                        action: string;
                        input_token_limit: number | null;
                        output_token_limit: number | null;
                        total_token_limit: number | null;
                    };
                    velocity: {
                        action: string;
                        max_tokens_per_minute: number | null;
                        max_usd_per_minute: number | null;
                    };
                };
                offline_calls: number;
                preset: string;
                quota: {
                    action: string;
                    max_used: string;
                };
                similarity: {
                    action: string;
                    enabled: boolean;
                    ends: string;
                    prompt_weight: number;
                    response_weight: number;
                    threshold: number;
                    tool_call_weight: number;
                    window_size: number;
                };
                steps: {
                    action: string;
                    max_model_calls: number | null;
                    max_steps: number | null;
                };
                strikes: {
                    action: string;
                    consecutive_blocks: number;
                    consecutive_errors: number;
                    enabled: boolean;
                    provider_errors: boolean;
                };
                swarm: {
                    action: string;
                    max_agents: number | null;
                    max_depth: number | null;
                    max_parallel: number | null;
                    max_spawns_per_minute: number | null;
                };
                text_loop: {
                    action: string;
                    enabled: boolean;
                    end_at: (number | null) | "off";
                    ends: string;
                    max_repeated_answers: number;
                    steer_at: (number | null) | "off";
                };
                time: {
                    action: string;
                    max_wall_time_seconds: number | null;
                };
                tokens: {
                    action: string;
                    input_token_limit: number | null;
                    output_token_limit: number | null;
                    total_token_limit: number | null;
                };
                velocity: {
                    action: string;
                    max_tokens_per_minute: number | null;
                    max_usd_per_minute: number | null;
                };
            };
        };
        /** @description An agent's sessions: what happened, and what would have. */
        AgentTried: {
            /** @description What would have happened under the policy. */
            after: components["schemas"]["Tally"];
            /** @description The agent. */
            agent: string;
            /** @description What happened. */
            before: components["schemas"]["Tally"];
            /** @description Their calls. */
            calls: number;
            /** @description Its sessions that were tried. */
            sessions: number;
        };
        /**
         * @description What a target can hear of.
         * @enum {string}
         */
        AlertOn: "kill" | "trip" | "budget_warning" | "breaker_open" | "approval" | "degraded";
        /** @description Incidents that are alike. */
        Alike: {
            /** @description The tool, or the guard's code for why. */
            about: string;
            /** @description The agent. */
            agent: string;
            /** @description The guard. */
            guard: string;
        };
        /** @description A call that waits for a person, or did. */
        Approval: {
            /** @description The agent that wants to make it. */
            agent: string;
            /**
             * @description What it is called with, without secrets. A list holds the first 2,000 characters,
             *     `GET /api/approvals/{id}` all of them.
             */
            asked: string;
            /**
             * Format: int64
             * @description Characters of the whole text.
             */
            asked_chars: number;
            /** @description Who decided. */
            decided_by: string | null;
            /**
             * Format: int64
             * @description When.
             */
            decided_ms: number | null;
            /** @description Why. */
            decided_why: string | null;
            /** @description What it would destroy, as far as that is known. */
            destroys: string[];
            /** @description Why, in a sentence. */
            explain: string;
            /** @description The guard that wants a person asked. */
            guard: string;
            /** @description What it would do, the worst first, as far as that is known. */
            harms: components["schemas"]["Would"][];
            /** @description Its id. */
            id: string;
            /** @description `tool` or `model`. */
            kind: string;
            /** @description The project. */
            project: string;
            /** @description Its code for why. */
            reason: string;
            /** @description The nested scopes in which it is made, one below the other. */
            scope: string | null;
            /** @description The server that it runs on. */
            server: string | null;
            /** @description The session. */
            session: string;
            /**
             * Format: int64
             * @description Since when it waits.
             */
            since_ms: number;
            /** @description `waiting`, `approved`, `denied`, `lapsed`, `withdrawn` or `stopped`. */
            state: string;
            /** @description The tool, or the model. */
            tool: string;
            /**
             * Format: int64
             * @description Characters of the call behind the whole text, which were not kept. A tool call with any
             *     cannot be approved.
             */
            unkept_chars: number;
            /**
             * Format: int64
             * @description Until when it does; then it is refused.
             */
            until_ms: number;
        };
        /** @description A person's word that lets a call pass. */
        Approving: {
            /** @description The person who says so, where a client speaks for several. */
            by?: string | null;
            /** @description Why. */
            reason: string;
            /**
             * Format: int64
             * @description Characters of `asked` that the person was shown. Needed for a tool call whose `asked_chars`
             *     are more than 2,000, and then equal to them.
             */
            shown_chars?: number | null;
        };
        /** @description A person's word. */
        Because: {
            /** @description The person who says so, where a client speaks for several. */
            by?: string | null;
            /** @description Why. */
            reason: string;
        };
        /** @description Money and time of a session. */
        BudgetControls: {
            /**
             * Format: double
             * @description The most that a session may cost; null for no limit.
             */
            max_cost_usd: number | null;
            /**
             * Format: int64
             * @description Seconds that a session may take; null for no limit.
             */
            max_wall_time_seconds: number | null;
            /**
             * Format: double
             * @description Warn when a session has cost this much; below `max_cost_usd`; null for no warning.
             */
            soft_alert_threshold_usd: number | null;
        };
        /** @description A call. */
        Call: {
            /** @description The agent that made it. */
            agent: string;
            /**
             * Format: int64
             * @description When it was made.
             */
            at_ms: number;
            /**
             * Format: int64
             * @description Input tokens read from a cache.
             */
            cache_read_tokens: number;
            /**
             * Format: int64
             * @description Input tokens written to a cache.
             */
            cache_write_tokens: number;
            /**
             * @description Why it failed, in short: the provider's HTTP status, such as `503`, or what happened, such as
             *     `time-out`. Null for a call that did not fail.
             */
            cause: string | null;
            /**
             * Format: double
             * @description Dollars.
             */
            cost_usd: number;
            /**
             * Format: int64
             * @description How long it took; null while it runs.
             */
            duration_ms: number | null;
            /**
             * Format: int64
             * @description How long its streamed answer took to begin; null for other calls, and where the door has not seen
             *     it.
             */
            first_ms: number | null;
            /** @description The guard that tripped. */
            guard: string | null;
            /** @description Its id. */
            id: string;
            /** @description The incident that it became. */
            incident: string | null;
            /**
             * Format: int64
             * @description Input tokens.
             */
            input_tokens: number;
            /** @description `model` or `tool`. */
            kind: string;
            /** @description The model's or the tool's name. */
            name: string;
            /** @description The nested scope that it was made in, if it was. */
            nested: string | null;
            /**
             * Format: int64
             * @description Output tokens.
             */
            output_tokens: number;
            /**
             * Format: int64
             * @description Its position in the session.
             */
            position: number;
            /** @description That guard's code for why. */
            reason: string | null;
            /** @description The provider or server it went to. */
            server: string | null;
            /** @description The session it belongs to. */
            session: string;
            /** @description That session's number: a name may be used again after a reset, a number is not. */
            session_number: string;
            /** @description `ok`, `error`, `fault` or `cancelled`; null while it runs, and if it never ran. */
            status: string | null;
            /** @description `allow`, `warn`, `steer`, `ask`, `block` or `kill`. */
            verdict: string;
        };
        /** @description A call, and what was said in it if that was kept. */
        CallDetail: components["schemas"]["Call"] & {
            said: components["schemas"]["Said"] | null;
        };
        /**
         * @description Which requests and answers are kept.
         * @enum {string}
         */
        Capture: "none" | "incidents" | "all";
        /** @description Whether the chain is whole. */
        Chain: {
            /**
             * Format: int64
             * @description The place of the first entry that is wrong.
             */
            broken_at: number | null;
            /**
             * Format: int64
             * @description How many there are, up to the first that is wrong.
             */
            entries: number;
            /** @description The last one's hash. Note it elsewhere as `entries:head`, and give it as `since` later. */
            head: string | null;
            /** @description Whether every entry is as it was written. */
            whole: boolean;
            /** @description What is wrong with it. */
            why: string | null;
        };
        /** @description A setting that is different. */
        Change: {
            /** @description What it is; null if it is not there. */
            after?: unknown;
            /** @description What it was; null if it was not there. */
            before?: unknown;
            /** @description Its path, such as `policy.budget.max_cost_usd`. */
            path: string;
        };
        /** @description When to leave a failing server alone. */
        CircuitBreaker: {
            /**
             * Format: int64
             * @description Seconds it stays open.
             * @example 30
             */
            cooldown_seconds: number;
            /** @description Whether it works at all. */
            enabled: boolean;
            /**
             * Format: int32
             * @description Trial calls after that.
             * @example 3
             */
            half_open_max_calls: number;
            /**
             * Format: int32
             * @description Failures in a row that open the circuit.
             * @example 5
             */
            open_after_failures: number;
        };
        /** @description Who has resolved an incident. */
        Closed: {
            /**
             * Format: int64
             * @description When.
             */
            at_ms: number;
            /** @description Who. */
            by: string;
            /** @description `fixed` or `false_alarm`. */
            how: string;
            /** @description What they had to say. */
            note: string;
        };
        /** @description The nodes, as this one sees them. */
        Cluster: {
            degraded: components["schemas"]["Degraded"] | null;
            /** @description This node. */
            node: string;
            /** @description All nodes that gave signs of life lately, this one among them. */
            nodes: string[];
        };
        /** @enum {string} */
        Code: "bad_json" | "bad_request" | "key_required" | "bad_key" | "forbidden" | "operator_required" | "bad_csrf_token" | "not_found" | "no_agent" | "no_session" | "method_not_allowed" | "session_final" | "scope_killed" | "already_decided" | "too_many_grants" | "calls_in_flight" | "name_taken" | "first_key_admin" | "last_admin_key" | "version_mismatch" | "too_large" | "wrong_content_type" | "invalid_body" | "invalid_query" | "bad_order" | "not_shown" | "if_match_required" | "not_durable" | "store_failed" | "no_store" | "internal";
        /** @description A command or a tool call to try. */
        CommandToTry: {
            /**
             * @description A command, as an agent's shell would get it.
             * @example git checkout -- .
             */
            command?: string | null;
            /** @description Its arguments. */
            input?: Record<string, never> | null;
            /**
             * @description The tool that is called, in place of a command.
             * @example drop_table
             */
            tool?: string | null;
        };
        /** @description One line. */
        Cost: {
            /**
             * Format: int64
             * @description Input tokens read from a cache.
             */
            cache_read_tokens: number;
            /**
             * Format: int64
             * @description Input tokens written to a cache.
             */
            cache_write_tokens: number;
            /**
             * Format: int64
             * @description Calls that ended.
             */
            calls: number;
            /**
             * Format: double
             * @description Dollars.
             */
            cost_usd: number;
            /**
             * Format: int64
             * @description Input tokens.
             */
            input_tokens: number;
            /** @description The agent, the model, or the first millisecond of the day or hour. */
            of: string;
            /**
             * Format: int64
             * @description Output tokens.
             */
            output_tokens: number;
            /**
             * @description For a model: true if its price is unknown, so that it was charged at $10 in and $30 out per
             *     million tokens. Null for other lines.
             */
            priced_by_fallback: boolean | null;
        };
        /** @description A key to log in with. */
        Credentials: {
            /** @description The key; on a server without keys the operator's token, or the code of a sign-in link. */
            key: string;
        };
        /** @description What was decided. */
        Decided: {
            /** @description Whether it may go ahead. */
            allowed: boolean;
            /** @description What waits for a person's word, if it does. */
            approval: string | null;
            /** @description The client's id for the call. */
            id: string;
            /** @description The incident that it became, if it is a new one. */
            incident: string | null;
            /** @description The call's span, where calls are exported: send it on as `traceparent` to what the call asks. */
            traceparent?: string | null;
            /** @description Every guard that has something to say, the strictest first. */
            trips: components["schemas"]["Spoken"][];
            /**
             * @description `allow`, `warn`, `ask`, `block` or `kill`. After `ask`, wait at `/api/approvals/{approval}`
             *     and ask again with the same id.
             */
            verdict: string;
        };
        /** @description What was decided about each of several calls. */
        DecidedAll: {
            /** @description One for each call, in order. */
            calls: components["schemas"]["Decided"][];
        };
        /** @description Something that is missing. */
        Degraded: {
            /**
             * Format: int64
             * @description Since when.
             */
            since_ms: number;
            /** @description What is missing, and what becomes of calls meanwhile. */
            what: string;
        };
        /** @description A delivery. */
        Delivered: {
            /** @description The agent it is about. */
            agent: string | null;
            /** @description What the target, or the way to it, said last. */
            answer: string | null;
            /**
             * Format: int64
             * @description How often it was tried.
             */
            attempts: number;
            /**
             * Format: int64
             * @description When it was delivered or given up.
             */
            done_ms: number | null;
            /**
             * Format: int64
             * @description When it is tried next; null once it is done.
             */
            due_ms: number | null;
            /** @description What it tells of. */
            event: string;
            /** @description Its id. */
            id: string;
            /** @description The incident it is about. */
            incident: string | null;
            /**
             * Format: int64
             * @description When the last of its messages was made.
             */
            last_ms: number;
            /**
             * Format: int64
             * @description When it was made.
             */
            made_ms: number;
            /** @description The session it is about. */
            session: string | null;
            /** @description `waiting`, `delivered` or `failed`. */
            state: string;
            /** @description The target. */
            target: string;
            /**
             * Format: int64
             * @description How many messages it stands for.
             */
            times: number;
        };
        /** @description What is different between two versions. */
        Difference: {
            /**
             * @description Every setting that differs. An agent without a policy of its own is compared as it stands
             *     under the project's default of now.
             */
            changes: components["schemas"]["Change"][];
            /**
             * Format: int64
             * @description The earlier one.
             */
            from: number;
            /**
             * Format: int64
             * @description The later one.
             */
            to: number;
        };
        /** @description A document and who wrote it. */
        Document: {
            /** @description The agent; null for the project's default. */
            agent: string | null;
            /**
             * Format: int64
             * @description When it was written.
             */
            at_ms: number | null;
            /**
             * @description The document, as it can be sent back: for the project a whole policy, for an agent
             *     `{policy, kill_switch}`, each of which may be null.
             */
            document: unknown;
            /** @description The policy in force. */
            effective: unknown;
            /** @description Why. */
            note: string | null;
            /**
             * Format: int64
             * @description Its version; 0 if there is none. The same as in the ETag.
             */
            version: number;
            /** @description Who wrote it. */
            who: string | null;
        };
        /** @description An order that was carried out. */
        Done: {
            /**
             * @description What was done: `killed`, `cleared`, `reset`, `paused`,
             *     `resumed` or `topped up`.
             */
            done: string;
            key: components["schemas"]["MadeKey"] | null;
            /** @description The scope as it is now. */
            scope: components["schemas"]["Row"];
        };
        /**
         * @description How a call ended.
         * @enum {string}
         */
        Ended: "ok" | "error" | "fault" | "cancelled";
        /** @description An entry. */
        Entry: {
            /** @description What was done, such as `agent.kill`. */
            action: string;
            /**
             * Format: int64
             * @description When.
             */
            at_ms: number;
            /** @description Anything else. */
            detail: unknown;
            /** @description The same word for word, as it is hashed. */
            detail_text: string;
            /** @description The hash of this one. */
            hash: string;
            /** @description Its number, which is hashed with it. */
            number: string;
            /** @description The hash of the entry before; empty for the first. */
            prev: string;
            /** @description The project. */
            project: string;
            /** @description Why, in their words. */
            reason: string;
            /**
             * Format: int64
             * @description Its place in the chain, from one.
             */
            seq: number;
            /** @description What it was done to. */
            subject: string;
            /** @description Who. */
            who: string;
        };
        /** @description What came of it. */
        Excepted: {
            /** @description The incident, resolved. */
            incident: components["schemas"]["Incident"];
            /**
             * Format: int64
             * @description The version of the agent's policy that is in force now.
             */
            version: number;
        };
        /** @description A provider or a tool server that fails, so that its calls are refused for a while. */
        FailingServer: {
            /**
             * Format: int64
             * @description In how many milliseconds calls are let through to try it; 0 while they are.
             */
            retry_in_ms: number;
            /** @description Its name. */
            server: string;
            /**
             * Format: int64
             * @description Since when, in milliseconds since 1970.
             */
            since_ms: number;
        };
        /** @description A false alarm. */
        FalseAlarm: {
            /** @description The person, where a client speaks for several. */
            by?: string | null;
            /** @description The exception to save; without it, the incident is only resolved. */
            exception?: string | null;
            /** @description Why it was one; kept with the version of the policy and in the audit. */
            reason: string;
        };
        /** @description How far it is. */
        Far: {
            /** @description Sessions that were tried. */
            done: number;
            /** @description Sessions that there are to try. */
            of: number;
        };
        /** @description A field that is wrong: where it stands, and what to do about it. */
        FieldFault: {
            /** @description The same in words, with what to do about it. */
            detail: string;
            /** @description Its path in the body, such as `budget.max_cost_usd`; empty for the body itself. */
            field: string;
            /** @description What is the matter. */
            problem: components["schemas"]["FieldProblem"];
        };
        /**
         * @description What is the matter with a field.
         * @enum {string}
         */
        FieldProblem: "unknown" | "missing" | "invalid";
        /** @description A session that was stopped, and would not have been. */
        Freed: {
            /** @description Its agent. */
            agent: string;
            /** @description What stopped it. */
            before: components["schemas"]["StoppedBy"];
            /** @description Its number. */
            number: string;
            /** @description Its name. */
            session: string;
        };
        /** @description How often something happened, piece by piece. */
        Frequency: {
            /** @description Incidents that began in each. */
            counts: number[];
            /**
             * Format: int64
             * @description The beginning of the first piece.
             */
            from_ms: number;
            /**
             * Format: int64
             * @description How long each piece is.
             */
            step_ms: number;
        };
        /** @description The grants of an agent or a session. */
        Given: {
            /** @description Those that are in force, in the order in which they were given. */
            items: components["schemas"]["Grant"][];
        };
        /** @description A grant as it is now. */
        Grant: {
            /** @description Who gave it. */
            by: string;
            /**
             * Format: int32
             * @description How much may be destroyed with it.
             */
            deletes: number;
            /**
             * Format: int64
             * @description When it ends.
             */
            expires_ms: number;
            /**
             * Format: int64
             * @description When it was given.
             */
            given_ms: number;
            /** @description Its id. */
            id: string;
            /**
             * Format: int32
             * @description How much of that is left.
             */
            left: number;
            /** @description Why. */
            reason: string;
            /** @description Only these targets. */
            target: string | null;
            /** @description Only by these tools. */
            tool: string | null;
        };
        /** @description Incidents with the same agent and guard that are about the same. */
        Group: {
            /** @description The tool, where it is about one tool; otherwise the guard's code for why. */
            about: string;
            /** @description The agent. */
            agent: string;
            /**
             * Format: int64
             * @description How many.
             */
            count: number;
            /** @description A short name for what they have in common. */
            fingerprint: string;
            /**
             * Format: int64
             * @description When it happened first.
             */
            first_ms: number;
            /** @description The guard. */
            guard: string;
            /**
             * Format: int64
             * @description When it happened last.
             */
            last_ms: number;
            muted: components["schemas"]["Silence"] | null;
            /**
             * Format: int64
             * @description How many of them are neither acknowledged nor resolved.
             */
            open: number;
            /** @description The guard's code for why; where they differ, one of them. */
            reason: string;
            /** @description Whether it happened again after one of them was resolved. */
            reopened: boolean;
            /**
             * Format: int64
             * @description How many of them are resolved.
             */
            resolved: number;
            /** @description `open`, `acknowledged`, `muted` or `resolved`: open if one of them is. */
            state: string;
            /**
             * @description How often it happened, in 28 equal pieces of the span that is asked for, or of the last seven
             *     days.
             */
            strip: components["schemas"]["Frequency"];
        };
        /**
         * @description Sorts of harm.
         * @enum {string}
         */
        HarmKindSeen: "destroys" | "discards_work" | "rewrites_history" | "stops" | "reads_secret" | "sends_secret" | "runs_download" | "opens_access" | "disables_deadstop" | "unreadable";
        /** @description What a call would do to the world, from a hook that has looked at the machine. */
        HarmSeen: {
            /** @description What sort of harm. */
            kind: components["schemas"]["HarmKindSeen"];
            /** @description How far it reaches. */
            reach: components["schemas"]["ReachSeen"];
            /** @description Whether what is lost comes back. */
            recovery: components["schemas"]["RecoverySeen"];
            /** @description What it is done to. */
            target: string;
            /** @description What is done, in a word or two. */
            verb: string;
        };
        /** @description Who is asking. */
        Identity: {
            /** @description The only agent that they may be. */
            agent: string | null;
            /** @description What a login must send as `x-csrf-token` with every change; null without a login. */
            csrf_token: string | null;
            /** @description The key's id; null for the local user of a server without keys. */
            key: string | null;
            /** @description What people call them. */
            name: string;
            /**
             * @description Whether orders that loosen control are taken from them: by their role, and on a server without
             *     keys only with the operator's token.
             */
            operator: boolean;
            /** @description The project. */
            project: string;
            /** @description What they may do. */
            role: components["schemas"]["Role"];
        };
        /** @description An incident. */
        Incident: {
            /** @description The tool, where it is about one tool; otherwise the guard's code for why. */
            about: string;
            acknowledged: components["schemas"]["Seen"] | null;
            /** @description The agent it happened to. */
            agent: string;
            /** @description The person who looks after it. */
            assignee: string | null;
            /**
             * Format: int64
             * @description When it happened, or began.
             */
            at_ms: number;
            /**
             * Format: int64
             * @description How many calls it met, of those that are still kept; 10,000 means that many or more.
             */
            calls: number;
            /** @description Why, in a sentence. */
            explain: string;
            /** @description What it has in common with incidents that are alike, in short: agent, guard and `about`. */
            fingerprint: string;
            /** @description Which guard. */
            guard: string;
            /** @description Its id. */
            id: string;
            /**
             * Format: int64
             * @description When it last grew: all steps of one loop are one incident, and so are all calls of one outage.
             */
            last_ms: number;
            muted: components["schemas"]["Silence"] | null;
            /** @description The provider that the call was for. */
            provider: string | null;
            /** @description Why, in a word that stays the same. */
            reason: string;
            resolved: components["schemas"]["Closed"] | null;
            /**
             * Format: double
             * @description What was measured, where it is a score.
             */
            score: number | null;
            /** @description The session it happened in. */
            session: string;
            /** @description That session's number; null for incidents from before there were numbers. */
            session_number: string | null;
            /** @description What the score is made of. */
            signals: components["schemas"]["SignalLine"][];
            /** @description `open`, `acknowledged`, `muted` or `resolved`. */
            state: string;
            /**
             * Format: double
             * @description The score that had to be exceeded.
             */
            threshold: number | null;
            /** @description The trip in full. */
            trip: unknown;
            /** @description The strictest so far: `warn`, `steer`, `block` or `kill`. */
            verdict: string;
            /**
             * Format: int32
             * @description How many requests were looked at.
             */
            window: number | null;
        };
        /**
         * @description What is to be done.
         * @enum {string}
         */
        IncidentAction: "acknowledge" | "assign" | "resolve" | "false_alarm" | "reopen" | "mute" | "unmute";
        /** @description An incident with everything that is known about it. */
        IncidentDetail: components["schemas"]["Incident"] & {
            /** @description The session's first calls after it. */
            after: components["schemas"]["Call"][];
            /** @description The session's last calls before it, oldest first. */
            before: components["schemas"]["Call"][];
            /** @description The requests and answers that it is about, secrets removed. */
            evidence: components["schemas"]["Piece"][];
            /**
             * @description The steps of a loop's ladder that were taken, the mildest first: what the agent was told, at
             *     which count, and what it did next. Empty for incidents that are no loop.
             */
            ladder: components["schemas"]["Rung"][];
            scoring: components["schemas"]["Scoring"] | null;
            unstopped: components["schemas"]["Pace"] | null;
        };
        /** @description What to do, and about which incidents. */
        IncidentOrder: {
            /** @description What is to be done. */
            action: components["schemas"]["IncidentAction"];
            /** @description To whom they are given. */
            assignee?: string | null;
            /** @description The person, where a client speaks for several. */
            by?: string | null;
            /** @description All incidents of these groups that are not resolved; to reopen, those that are. */
            groups?: components["schemas"]["Alike"][];
            /** @description Ids of incidents. */
            ids?: string[];
            /** @description What you have to say. */
            note?: string;
            /**
             * Format: int64
             * @description Until when they are muted, in milliseconds since 1970; for good without it.
             */
            until_ms?: number | null;
        };
        /** @description What is to be done with a listing. */
        Judged: {
            /** @description Tools that have changed since they were first seen. */
            changed: string[];
            /** @description Tools that the policy does not allow. */
            hidden: string[];
        };
        /** @description A key, without its secret. */
        Key: {
            /** @description The only agent that it may be, or a pattern for it; null for any. */
            agent: string | null;
            /** @description Who made it. */
            created_by: string;
            /**
             * Format: int64
             * @description When.
             */
            created_ms: number;
            /** @description What finds it; a part of its text. */
            id: string;
            /** @description What people call it. */
            name: string;
            /** @description Who took it out of force. */
            revoked_by: string | null;
            /**
             * Format: int64
             * @description Since when it is no longer in force.
             */
            revoked_ms: number | null;
            /** @description What it may do. */
            role: components["schemas"]["Role"];
            /**
             * Format: int64
             * @description When it was last used, to the minute.
             */
            used_ms: number | null;
        };
        /** @description Agents that may call without a key for the time being. */
        KeyGrace: {
            /** @description Those that have called without a key since the first key was made; at most 100. */
            agents: string[];
            /**
             * Format: int64
             * @description Until when.
             */
            until_ms: number;
        };
        /** @description A key to be made. */
        KeyOrder: {
            /** @description For the role `agent`: the only agent that it may be, a pattern such as `team-*`, or `*` for any. */
            agent?: string | null;
            /** @description What people call it. */
            name: string;
            /** @description What it may do. */
            role: components["schemas"]["Role"];
        };
        /** @description The similarity kill switch of an agent. */
        KillSwitch: {
            /** @description Whether it looks at all. */
            enabled: boolean;
            /**
             * Format: double
             * @description The score that must be exceeded.
             * @example 10
             */
            threshold: number;
            /**
             * Format: int32
             * @description Recent requests to look at.
             * @example 20
             */
            window_size: number;
        };
        /** @description A ready-made kill switch. */
        KillSwitchPreset: {
            /** @description What it is called. */
            name: string;
            /**
             * Format: double
             * @description The score that must be exceeded.
             */
            threshold: number;
            /**
             * Format: int32
             * @description Recent requests to look at.
             */
            window_size: number;
        };
        /** @description What a guard measures, against its limit. */
        Limit: {
            /** @description The guard. */
            guard: string;
            /**
             * Format: double
             * @description From where on it trips.
             */
            limit: number;
            /**
             * Format: double
             * @description How much that is.
             */
            measured: number;
            /** @description The server that it is about, if it is about one that is known by name. */
            server: string | null;
            /**
             * Format: double
             * @description How near it is: 0 is nothing, 1 is the limit.
             */
            share: number;
            /** @description What a score is made of. */
            signals: components["schemas"]["SignalLine"][];
            /** @description In what both are given: `count`, `tokens`, `usd`, `ms` or `score`. */
            unit: string;
            /** @description What it measures, such as `cost`, `score` or `calls_without_news`. */
            what: string;
        };
        /** @description A document in the list. */
        Listed: {
            /** @description The agent; null for the project's default. */
            agent: string | null;
            /**
             * Format: int64
             * @description When it was written.
             */
            at_ms: number;
            /** @description Whether it went back to the default. */
            is_default: boolean;
            /** @description Why. */
            note: string;
            /**
             * Format: int64
             * @description Its version.
             */
            version: number;
            /** @description Who wrote it. */
            who: string;
        };
        /**
         * @description What to do about a loop.
         * @enum {string}
         */
        LoopAction: "warn" | "steer" | "ask" | "block" | "terminate";
        /** @description Calls that repeat themselves. */
        LoopDetection: {
            /** @description What to do then. */
            action: components["schemas"]["LoopAction"];
            /**
             * Format: int32
             * @description The ladder: repeated calls from which on they are refused.
             */
            block_at?: number | null;
            /** @description Whether to look at all. */
            enabled: boolean;
            /**
             * Format: int32
             * @description The ladder: repeated calls that end the session.
             */
            end_at?: number | null;
            /**
             * Format: int64
             * @description Tool calls a session may make; null for no limit.
             */
            max_steps: number | null;
            /**
             * Format: int32
             * @description The ladder: repeated calls from which on the model is told. A body that names none of the
             *     three rungs has threshold and action alone.
             */
            steer_at?: number | null;
            /**
             * Format: int32
             * @description Repeated calls in a row that are a loop.
             * @example 5
             */
            threshold: number;
        };
        /** @description A key that was just made. */
        MadeKey: components["schemas"]["Key"] & {
            /**
             * Format: int64
             * @description After the first key: until when they may call without one; null if they may not, or if this is
             *     not the first.
             */
            grace_until_ms: number | null;
            /** @description The key itself. It is shown this once. */
            key: string;
            /** @description After the first key: agents that did something in the last 24 hours, and need a key now. */
            running: string[];
        };
        /** @description A project that was just made. */
        MadeProject: components["schemas"]["Project"] & {
            admin: components["schemas"]["MadeKey"] | null;
        };
        /** @description A target that was made or moved. */
        MadeTarget: components["schemas"]["Target"] & {
            /** @description What a webhook is signed with, where it was made here. It is shown this once. */
            secret: string | null;
        };
        /** @description Incidents that are alike and send no alerts. */
        Muted: components["schemas"]["Silence"] & {
            /** @description The tool, or the guard's code for why. */
            about: string;
            /** @description The agent. */
            agent: string;
            /** @description A short name for what they have in common. */
            fingerprint: string;
            /** @description The guard. */
            guard: string;
        };
        /** @description An allowance for a destructive batch. */
        NewGrant: {
            /** @description The person who says so, where a client speaks for several. */
            by?: string | null;
            /**
             * Format: int32
             * @description How much may be destroyed with it.
             * @example 50
             */
            deletes: number;
            /**
             * Format: int64
             * @description Seconds until it ends.
             * @example 600
             */
            expires_in_s: number;
            /** @description Why. */
            reason: string;
            /**
             * @description Only these targets; `*` stands for any characters. One without a star may be destroyed again
             *     and again.
             * @example tmp_*
             */
            target?: string | null;
            /** @description Only by these tools; `*` stands for any characters. */
            tool?: string | null;
        };
        /** @description The first tool call after a step. */
        Next: {
            /**
             * Format: int64
             * @description When.
             */
            at_ms: number;
            /** @description The call's id. */
            call: string;
            /** @description The tool. */
            name: string;
            /** @description Whether it went on with the loop. */
            repeats: boolean;
        };
        /** @description A session that is open. */
        Opened: {
            /** @description The agent. */
            agent: string;
            /** @description The policy in force, for an engine of the client's own. */
            policy: unknown;
            /** @description The session as it is now. */
            scope: components["schemas"]["Row"];
            /** @description The session's name. */
            session: string;
        };
        /** @description Opens a session. */
        Opening: {
            /** @description The agent. */
            agent: string;
            /**
             * @description Whether the agent's context was compacted, where no model call tells that: what it forgot it
             *     may look up again.
             */
            compacted?: boolean;
            /**
             * @description Whether the sub-agent of `scope` has ended: it no longer counts as at work. Without `scope`, whether
             *     the session is over, and its reported calls with it; its next call opens it again.
             */
            done?: boolean;
            /**
             * @description What a person has just said to it, where no model call tells that: new words let calls be
             *     made again that would have been repetition.
             */
            said?: string | null;
            /**
             * @description The nested scopes that are opened in it, the outermost first: a sub-agent begins. The limits
             *     on sub-agents decide whether it may.
             */
            scope?: string[];
            /** @description The session's name; one is made up if none is given. */
            session?: string | null;
        };
        /** @description An order: what it is about, and why. */
        Order: {
            /** @description An agent by its name. */
            agent?: string | null;
            /** @description Everything there is. */
            all?: boolean;
            /** @description The person who says so, where a client speaks for several. */
            by?: string | null;
            /**
             * @description Kill or pause in advance: the agent or session has made no call yet. Without it, an unknown name
             *     is refused, because it may be a typo.
             */
            new?: boolean;
            /** @description Why. */
            reason?: string;
            /** @description A session by its name, or as `agent/session`; with `agent` where that is not enough. */
            session?: string | null;
        };
        /** @description What the policy would have done. */
        Outcome: {
            /** @description Before and after, for each agent. */
            agents: components["schemas"]["AgentTried"][];
            /** @description Calls that a person would have been asked about. */
            asked: number;
            /** @description Calls that would have been refused. */
            blocked: number;
            /** @description Stops by guard. */
            by_guard: {
                [key: string]: number;
            };
            /** @description Calls that were tried: those that ran, and those that were refused. */
            calls: number;
            /** @description Every session that was stopped, and would not have been. */
            freed: components["schemas"]["Freed"][];
            /** @description Sessions that would have been ended. */
            killed: number;
            /** @description Sessions that were asked for and not tried, because the calls of newer ones are 50,000. */
            left_out: number;
            /**
             * Format: double
             * @description Dollars that would not have been spent.
             */
            saved_usd: number;
            /** @description Sessions that were tried. */
            sessions: number;
            /** @description Every session that would have been stopped. */
            stopped: components["schemas"]["Stopped"][];
            /** @description Calls that would have passed with a warning. */
            warned: number;
        };
        /** @description An own price, in dollars per million tokens. */
        OwnPrice: {
            /**
             * Format: double
             * @description Input that is read from a cache; null for as much as input.
             */
            cache_read_usd: number | null;
            /**
             * Format: double
             * @description Input that is written to a cache; null for as much as input.
             */
            cache_write_usd: number | null;
            /**
             * Format: double
             * @description Input.
             */
            input_usd: number;
            /**
             * Format: double
             * @description Output.
             */
            output_usd: number;
        };
        /** @description What a stop saved, and how that was worked out. */
        Pace: {
            /**
             * Format: double
             * @description Calls a minute, before it was stopped.
             */
            calls_per_minute: number;
            /**
             * Format: double
             * @description Dollars saved: the pace until now, at most what a run usually costs. Null if what is usual is not known.
             */
            cost_usd: number | null;
            /** @description The calculation, in words. */
            how: string;
            /** @description Calls that this was measured by. */
            measured_calls: number;
            /**
             * Format: int64
             * @description The time that they took, in milliseconds.
             */
            measured_ms: number;
            /**
             * Format: int64
             * @description When the saving ends: now, or when the cost of a usual run is reached.
             */
            until_ms: number;
            /**
             * Format: double
             * @description Dollars a minute, before it was stopped.
             */
            usd_per_minute: number;
            /** @description The other runs that this was taken from. */
            usual_runs: number;
            /**
             * Format: double
             * @description What nine of ten runs of the agent cost at most; null without three other runs that were not stopped.
             */
            usual_usd: number | null;
        };
        /** @description A page of a list. */
        Page_Activity: {
            /** @description What is on it. */
            items: {
                /**
                 * Format: int64
                 * @description The first millisecond of the step.
                 */
                at_ms: number;
                /**
                 * Format: int64
                 * @description Calls of models and tools, also those that were refused.
                 */
                calls: number;
                /**
                 * Format: int64
                 * @description Those that failed: of the provider, the tool or the caller.
                 */
                failed: number;
                /**
                 * Format: int64
                 * @description Those that were refused or cut.
                 */
                refused: number;
            }[];
            /** @description The cursor of the next page; null if this is the last. */
            next: string | null;
        };
        /** @description A page of a list. */
        Page_Agent: {
            /** @description What is on it. */
            items: (components["schemas"]["Totals"] & {
                /** @description Whether it may run. */
                active: boolean;
                /** @description Who switched it off: `kill_switch`, another guard, or a person. */
                deactivated_by: string | null;
                /**
                 * Format: int64
                 * @description When.
                 */
                deactivated_ms: number | null;
                /** @description The providers and tool servers that fail, so that their calls are refused for a while. */
                failing?: components["schemas"]["FailingServer"][];
                /** @description `ok`, `warning` (incidents or loops in the last 24 hours), `paused` or `stopped`. */
                health: string;
                /** @description Its name. */
                name: string;
                /**
                 * Format: int64
                 * @description When it was first heard of.
                 */
                opened_ms: number;
                /** @description The windows that its providers have reported and that have not begun anew, the fullest first. */
                quotas: components["schemas"]["Quota"][];
                /**
                 * Format: int64
                 * @description When an operator removed it; null if it is listed.
                 */
                removed_ms: number | null;
                /** @description What people have tagged it with. */
                tags: string[];
                /**
                 * Format: int64
                 * @description When it last did something.
                 */
                used_ms: number;
                /** @description Why, in a sentence. */
                why: string | null;
            })[];
            /** @description The cursor of the next page; null if this is the last. */
            next: string | null;
        };
        /** @description A page of a list. */
        Page_Call: {
            /** @description What is on it. */
            items: {
                /** @description The agent that made it. */
                agent: string;
                /**
                 * Format: int64
                 * @description When it was made.
                 */
                at_ms: number;
                /**
                 * Format: int64
                 * @description Input tokens read from a cache.
                 */
                cache_read_tokens: number;
                /**
                 * Format: int64
                 * @description Input tokens written to a cache.
                 */
                cache_write_tokens: number;
                /**
                 * @description Why it failed, in short: the provider's HTTP status, such as `503`, or what happened, such as
                 *     `time-out`. Null for a call that did not fail.
                 */
                cause: string | null;
                /**
                 * Format: double
                 * @description Dollars.
                 */
                cost_usd: number;
                /**
                 * Format: int64
                 * @description How long it took; null while it runs.
                 */
                duration_ms: number | null;
                /**
                 * Format: int64
                 * @description How long its streamed answer took to begin; null for other calls, and where the door has not seen
                 *     it.
                 */
                first_ms: number | null;
                /** @description The guard that tripped. */
                guard: string | null;
                /** @description Its id. */
                id: string;
                /** @description The incident that it became. */
                incident: string | null;
                /**
                 * Format: int64
                 * @description Input tokens.
                 */
                input_tokens: number;
                /** @description `model` or `tool`. */
                kind: string;
                /** @description The model's or the tool's name. */
                name: string;
                /** @description The nested scope that it was made in, if it was. */
                nested: string | null;
                /**
                 * Format: int64
                 * @description Output tokens.
                 */
                output_tokens: number;
                /**
                 * Format: int64
                 * @description Its position in the session.
                 */
                position: number;
                /** @description That guard's code for why. */
                reason: string | null;
                /** @description The provider or server it went to. */
                server: string | null;
                /** @description The session it belongs to. */
                session: string;
                /** @description That session's number: a name may be used again after a reset, a number is not. */
                session_number: string;
                /** @description `ok`, `error`, `fault` or `cancelled`; null while it runs, and if it never ran. */
                status: string | null;
                /** @description `allow`, `warn`, `steer`, `ask`, `block` or `kill`. */
                verdict: string;
            }[];
            /** @description The cursor of the next page; null if this is the last. */
            next: string | null;
        };
        /** @description A page of a list. */
        Page_Cost: {
            /** @description What is on it. */
            items: {
                /**
                 * Format: int64
                 * @description Input tokens read from a cache.
                 */
                cache_read_tokens: number;
                /**
                 * Format: int64
                 * @description Input tokens written to a cache.
                 */
                cache_write_tokens: number;
                /**
                 * Format: int64
                 * @description Calls that ended.
                 */
                calls: number;
                /**
                 * Format: double
                 * @description Dollars.
                 */
                cost_usd: number;
                /**
                 * Format: int64
                 * @description Input tokens.
                 */
                input_tokens: number;
                /** @description The agent, the model, or the first millisecond of the day or hour. */
                of: string;
                /**
                 * Format: int64
                 * @description Output tokens.
                 */
                output_tokens: number;
                /**
                 * @description For a model: true if its price is unknown, so that it was charged at $10 in and $30 out per
                 *     million tokens. Null for other lines.
                 */
                priced_by_fallback: boolean | null;
            }[];
            /** @description The cursor of the next page; null if this is the last. */
            next: string | null;
        };
        /** @description A page of a list. */
        Page_Delivered: {
            /** @description What is on it. */
            items: {
                /** @description The agent it is about. */
                agent: string | null;
                /** @description What the target, or the way to it, said last. */
                answer: string | null;
                /**
                 * Format: int64
                 * @description How often it was tried.
                 */
                attempts: number;
                /**
                 * Format: int64
                 * @description When it was delivered or given up.
                 */
                done_ms: number | null;
                /**
                 * Format: int64
                 * @description When it is tried next; null once it is done.
                 */
                due_ms: number | null;
                /** @description What it tells of. */
                event: string;
                /** @description Its id. */
                id: string;
                /** @description The incident it is about. */
                incident: string | null;
                /**
                 * Format: int64
                 * @description When the last of its messages was made.
                 */
                last_ms: number;
                /**
                 * Format: int64
                 * @description When it was made.
                 */
                made_ms: number;
                /** @description The session it is about. */
                session: string | null;
                /** @description `waiting`, `delivered` or `failed`. */
                state: string;
                /** @description The target. */
                target: string;
                /**
                 * Format: int64
                 * @description How many messages it stands for.
                 */
                times: number;
            }[];
            /** @description The cursor of the next page; null if this is the last. */
            next: string | null;
        };
        /** @description A page of a list. */
        Page_Entry: {
            /** @description What is on it. */
            items: {
                /** @description What was done, such as `agent.kill`. */
                action: string;
                /**
                 * Format: int64
                 * @description When.
                 */
                at_ms: number;
                /** @description Anything else. */
                detail: unknown;
                /** @description The same word for word, as it is hashed. */
                detail_text: string;
                /** @description The hash of this one. */
                hash: string;
                /** @description Its number, which is hashed with it. */
                number: string;
                /** @description The hash of the entry before; empty for the first. */
                prev: string;
                /** @description The project. */
                project: string;
                /** @description Why, in their words. */
                reason: string;
                /**
                 * Format: int64
                 * @description Its place in the chain, from one.
                 */
                seq: number;
                /** @description What it was done to. */
                subject: string;
                /** @description Who. */
                who: string;
            }[];
            /** @description The cursor of the next page; null if this is the last. */
            next: string | null;
        };
        /** @description A page of a list. */
        Page_Group: {
            /** @description What is on it. */
            items: {
                /** @description The tool, where it is about one tool; otherwise the guard's code for why. */
                about: string;
                /** @description The agent. */
                agent: string;
                /**
                 * Format: int64
                 * @description How many.
                 */
                count: number;
                /** @description A short name for what they have in common. */
                fingerprint: string;
                /**
                 * Format: int64
                 * @description When it happened first.
                 */
                first_ms: number;
                /** @description The guard. */
                guard: string;
                /**
                 * Format: int64
                 * @description When it happened last.
                 */
                last_ms: number;
                muted: components["schemas"]["Silence"] | null;
                /**
                 * Format: int64
                 * @description How many of them are neither acknowledged nor resolved.
                 */
                open: number;
                /** @description The guard's code for why; where they differ, one of them. */
                reason: string;
                /** @description Whether it happened again after one of them was resolved. */
                reopened: boolean;
                /**
                 * Format: int64
                 * @description How many of them are resolved.
                 */
                resolved: number;
                /** @description `open`, `acknowledged`, `muted` or `resolved`: open if one of them is. */
                state: string;
                /**
                 * @description How often it happened, in 28 equal pieces of the span that is asked for, or of the last seven
                 *     days.
                 */
                strip: components["schemas"]["Frequency"];
            }[];
            /** @description The cursor of the next page; null if this is the last. */
            next: string | null;
        };
        /** @description A page of a list. */
        Page_Incident: {
            /** @description What is on it. */
            items: {
                /** @description The tool, where it is about one tool; otherwise the guard's code for why. */
                about: string;
                acknowledged: components["schemas"]["Seen"] | null;
                /** @description The agent it happened to. */
                agent: string;
                /** @description The person who looks after it. */
                assignee: string | null;
                /**
                 * Format: int64
                 * @description When it happened, or began.
                 */
                at_ms: number;
                /**
                 * Format: int64
                 * @description How many calls it met, of those that are still kept; 10,000 means that many or more.
                 */
                calls: number;
                /** @description Why, in a sentence. */
                explain: string;
                /** @description What it has in common with incidents that are alike, in short: agent, guard and `about`. */
                fingerprint: string;
                /** @description Which guard. */
                guard: string;
                /** @description Its id. */
                id: string;
                /**
                 * Format: int64
                 * @description When it last grew: all steps of one loop are one incident, and so are all calls of one outage.
                 */
                last_ms: number;
                muted: components["schemas"]["Silence"] | null;
                /** @description The provider that the call was for. */
                provider: string | null;
                /** @description Why, in a word that stays the same. */
                reason: string;
                resolved: components["schemas"]["Closed"] | null;
                /**
                 * Format: double
                 * @description What was measured, where it is a score.
                 */
                score: number | null;
                /** @description The session it happened in. */
                session: string;
                /** @description That session's number; null for incidents from before there were numbers. */
                session_number: string | null;
                /** @description What the score is made of. */
                signals: components["schemas"]["SignalLine"][];
                /** @description `open`, `acknowledged`, `muted` or `resolved`. */
                state: string;
                /**
                 * Format: double
                 * @description The score that had to be exceeded.
                 */
                threshold: number | null;
                /** @description The trip in full. */
                trip: unknown;
                /** @description The strictest so far: `warn`, `steer`, `block` or `kill`. */
                verdict: string;
                /**
                 * Format: int32
                 * @description How many requests were looked at.
                 */
                window: number | null;
            }[];
            /** @description The cursor of the next page; null if this is the last. */
            next: string | null;
        };
        /** @description A page of a list. */
        Page_Key: {
            /** @description What is on it. */
            items: {
                /** @description The only agent that it may be, or a pattern for it; null for any. */
                agent: string | null;
                /** @description Who made it. */
                created_by: string;
                /**
                 * Format: int64
                 * @description When.
                 */
                created_ms: number;
                /** @description What finds it; a part of its text. */
                id: string;
                /** @description What people call it. */
                name: string;
                /** @description Who took it out of force. */
                revoked_by: string | null;
                /**
                 * Format: int64
                 * @description Since when it is no longer in force.
                 */
                revoked_ms: number | null;
                /** @description What it may do. */
                role: components["schemas"]["Role"];
                /**
                 * Format: int64
                 * @description When it was last used, to the minute.
                 */
                used_ms: number | null;
            }[];
            /** @description The cursor of the next page; null if this is the last. */
            next: string | null;
        };
        /** @description A page of a list. */
        Page_Listed: {
            /** @description What is on it. */
            items: {
                /** @description The agent; null for the project's default. */
                agent: string | null;
                /**
                 * Format: int64
                 * @description When it was written.
                 */
                at_ms: number;
                /** @description Whether it went back to the default. */
                is_default: boolean;
                /** @description Why. */
                note: string;
                /**
                 * Format: int64
                 * @description Its version.
                 */
                version: number;
                /** @description Who wrote it. */
                who: string;
            }[];
            /** @description The cursor of the next page; null if this is the last. */
            next: string | null;
        };
        /** @description A page of a list. */
        Page_Muted: {
            /** @description What is on it. */
            items: (components["schemas"]["Silence"] & {
                /** @description The tool, or the guard's code for why. */
                about: string;
                /** @description The agent. */
                agent: string;
                /** @description A short name for what they have in common. */
                fingerprint: string;
                /** @description The guard. */
                guard: string;
            })[];
            /** @description The cursor of the next page; null if this is the last. */
            next: string | null;
        };
        /** @description A page of a list. */
        Page_Project: {
            /** @description What is on it. */
            items: {
                /** @description Its name. */
                name: string;
                /**
                 * Format: int64
                 * @description When it was first heard of.
                 */
                opened_ms: number;
            }[];
            /** @description The cursor of the next page; null if this is the last. */
            next: string | null;
        };
        /** @description A page of a list. */
        Page_Session: {
            /** @description What is on it. */
            items: (components["schemas"]["Totals"] & {
                /** @description Its agent. */
                agent: string;
                /** @description The provider that it used last, if that fails, so that its calls are refused for a while. */
                failing?: components["schemas"]["FailingServer"][];
                /** @description The model that it used last. */
                model: string | null;
                /** @description Its name. */
                name: string;
                /** @description Its number; a session that was reset gets a new one. Null while it is not written yet. */
                number: string | null;
                /**
                 * Format: int64
                 * @description When it was opened.
                 */
                opened_ms: number;
                /** @description The provider that it used last. */
                provider: string | null;
                /** @description How it stands, with its agent and its project. */
                standing: components["schemas"]["ScopeStanding"];
                /** @description `running`, `paused`, `killed` or `ended`: whether its own calls go through. */
                state: string;
                /**
                 * @description What was ended above it, so that its calls are refused although it was not ended itself:
                 *     `agent`, `project`, or null.
                 */
                stopped_with: string | null;
                /** @description Its health tags, such as `loop_detected` or `budget_warning`. */
                tags: string[];
                /**
                 * Format: int64
                 * @description When it last did something.
                 */
                used_ms: number;
                /** @description Why it is in this state. */
                why: string | null;
            })[];
            /** @description The cursor of the next page; null if this is the last. */
            next: string | null;
        };
        /** @description A page of a list. */
        Page_SpeedLine: {
            /** @description What is on it. */
            items: {
                /**
                 * Format: int64
                 * @description Calls that ended.
                 */
                calls: number;
                /**
                 * Format: int64
                 * @description Those that were cut off or abandoned.
                 */
                cancelled: number;
                /**
                 * Format: double
                 * @description Faults and errors, over all calls that were not cancelled: 0 to 1.
                 */
                error_rate: number;
                /**
                 * Format: int64
                 * @description Those that were answered with an error of the caller's: a wrong key, a malformed request.
                 */
                errors: number;
                /**
                 * Format: int64
                 * @description Those that the provider failed to answer: 5xx, 429, time-outs, broken answers.
                 */
                faults: number;
                /**
                 * Format: int64
                 * @description Half of the streamed answers took this long or less to begin; null if there was none.
                 */
                first_half_ms: number | null;
                /**
                 * Format: int64
                 * @description 95 of 100 streamed answers took this long or less to begin.
                 */
                first_most_ms: number | null;
                /**
                 * Format: int64
                 * @description Half of the whole answers took this long or less; null if there was none.
                 */
                half_ms: number | null;
                /** @description The model; empty for a line a provider. */
                model: string;
                /**
                 * Format: int64
                 * @description 95 of 100 whole answers took this long or less.
                 */
                most_ms: number | null;
                /** @description The provider; empty where it is not known. */
                provider: string;
            }[];
            /** @description The cursor of the next page; null if this is the last. */
            next: string | null;
        };
        /** @description A page of a list. */
        Page_Spent: {
            /** @description What is on it. */
            items: {
                /**
                 * Format: int64
                 * @description The first millisecond of the step.
                 */
                at_ms: number;
                /**
                 * Format: int64
                 * @description Calls of models and paid tools that ended, by when they were asked.
                 */
                calls: number;
                /**
                 * Format: double
                 * @description Dollars.
                 */
                cost_usd: number;
                /** @description The agent or the model; empty if the series is not split. */
                of: string;
            }[];
            /** @description The cursor of the next page; null if this is the last. */
            next: string | null;
        };
        /** @description A page of a list. */
        Page_Target: {
            /** @description What is on it. */
            items: {
                /** @description Whether it is in use. */
                active: boolean;
                /** @description The agent it is for; null for all of the project. */
                agent: string | null;
                /**
                 * Format: int64
                 * @description When it was last changed.
                 */
                changed_ms: number;
                /** @description What it wants to hear of. */
                events: string[];
                /** @description Its id. */
                id: string;
                /** @description `webhook`, `slack` or `email`. */
                kind: string;
                /**
                 * Format: int64
                 * @description When it was made.
                 */
                made_ms: number;
                /** @description What people call it. */
                name: string;
                /** @description Where it goes, without what may be secret. */
                summary: string;
            }[];
            /** @description The cursor of the next page; null if this is the last. */
            next: string | null;
        };
        /** @description One of the calls that an incident is about. */
        Piece: components["schemas"]["Said"] & {
            body: components["schemas"]["RequestBody"] | null;
            /** @description The call's id, if it is known. */
            call: string | null;
            /**
             * Format: int64
             * @description Its place, from zero.
             */
            position: number;
        };
        /** @description A ready-made policy. */
        PolicyPreset: {
            /** @description What it is called. */
            name: string;
            /** @description The whole policy, as `PUT /api/policies/default` takes it. */
            policy: unknown;
        };
        /** @description A model call that is about to be made. */
        Preflight: {
            /**
             * @description Whether the history before it was rewritten, as a context compaction does: what the agent
             *     forgot it may look up again.
             */
            compacted?: boolean;
            /** @description Whether a person has said it. */
            from_person?: boolean;
            /** @description The client's id for this call. */
            id: string;
            /**
             * Format: int64
             * @description Tokens of the prompt, as far as they are known.
             */
            input_tokens?: number;
            /**
             * Format: int64
             * @description The most tokens that the answer may have.
             */
            max_output_tokens?: number | null;
            /** @description The model. */
            model: string;
            /** @description What is new in the prompt since the last call. */
            prompt?: string | null;
            /** @description The provider. */
            provider?: string | null;
            /** @description The nested scopes in which it is made, the outermost first. */
            scope?: string[];
        };
        /** @description Ready-made settings, the tightest kill switch first and the mildest policy first. */
        Presets: {
            /** @description Kill switches. */
            kill_switch: components["schemas"]["KillSwitchPreset"][];
            /** @description Whole policies. */
            policies: components["schemas"]["PolicyPreset"][];
        };
        /** @description The guards in force, and whose they are. */
        Prevention: {
            /** @description The agent; null for the project's default. */
            agent_name: string | null;
            budget: components["schemas"]["BudgetControls"];
            circuit_breaker: components["schemas"]["CircuitBreaker"];
            /** @description Whether the agent has guards of its own. */
            is_agent_override: boolean;
            loop_detection: components["schemas"]["LoopDetection"];
        };
        /** @description Guards of an agent, or of all agents of a project that have none of their own. */
        PreventionConfig: {
            /** @description Money and time. */
            budget: components["schemas"]["BudgetControls"];
            /** @description Failing servers. */
            circuit_breaker: components["schemas"]["CircuitBreaker"];
            /** @description Calls that repeat themselves. */
            loop_detection: components["schemas"]["LoopDetection"];
        };
        /** @description What a model costs. */
        PriceLine: {
            /**
             * Format: double
             * @description Of input that is read from a cache.
             */
            cache_read_usd: number;
            /**
             * Format: double
             * @description Of input that is written to a cache.
             */
            cache_write_usd: number;
            /**
             * Format: int64
             * @description Calls of it so far; 0 if it was never used.
             */
            calls: number;
            /**
             * Format: int64
             * @description When an own price was set.
             */
            changed_ms: number | null;
            /**
             * Format: double
             * @description Dollars that they came to, at the prices of their time.
             */
            cost_usd: number;
            /**
             * Format: double
             * @description Dollars per million tokens of input.
             */
            input_usd: number;
            /** @description The model. */
            model: string;
            /**
             * Format: double
             * @description Of output.
             */
            output_usd: number;
            /** @description Where the price comes from: `own`, `catalogue`, or `fallback` if the model is unknown. */
            source: string;
            /** @description By whom. */
            who: string | null;
        };
        /** @description What models cost in this project. */
        PriceList: {
            /** @description Where the catalogue comes from. */
            catalogue: string;
            /** @description The day whose prices it has. */
            catalogue_date: string;
            /** @description Own prices and models that were used: unknown prices first, then own ones. */
            items: components["schemas"]["PriceLine"][];
        };
        /** @description An error as it is sent. */
        Problem: {
            /** @description What went wrong, in a word that stays the same. */
            code: components["schemas"]["Code"];
            /** @description What went wrong, in words, and what to do about it. */
            detail: string;
            /** @description The fields or parameters that are wrong, all of them. */
            errors: components["schemas"]["FieldFault"][];
            /**
             * Format: int32
             * @description The status.
             */
            status: number;
            /** @description The status in words. */
            title: string;
            /** @description Always `about:blank`: the code tells more. */
            type: string;
        };
        /** @description A project. */
        Project: {
            /** @description Its name. */
            name: string;
            /**
             * Format: int64
             * @description When it was first heard of.
             */
            opened_ms: number;
        };
        /** @description A project to be made. */
        ProjectOrder: {
            /** @description Its name. */
            name: string;
        };
        /** @description Tool calls that an answer asks for. */
        Proposal: {
            /** @description The calls, in order. */
            calls: components["schemas"]["ProposedCall"][];
            /**
             * Format: int64
             * @description How long they may be held while the session is paused, in seconds; 0 refuses them at once.
             */
            hold_s?: number;
            /** @description The nested scopes in which they are made, the outermost first. */
            scope?: string[];
        };
        /** @description What would keep an incident from happening again. */
        Proposed: {
            /** @description The agent whose policy would change. */
            agent: string;
            /** @description The exceptions, the narrowest first. Empty where the policy language has none. */
            exceptions: components["schemas"]["ProposedException"][];
            /** @description Which of them is recommended: the narrowest with which the session would not have been stopped. */
            recommended: string | null;
            /**
             * Format: int64
             * @description The version of its policy that the exceptions start from.
             */
            version: number;
        };
        /** @description A tool call that an answer asks for. */
        ProposedCall: {
            /** @description Its arguments: an object as a rule, but whatever the model made up is judged. */
            arguments?: unknown;
            /** @description What harm it would do, from a hook that has looked at the machine. Not for other clients. */
            harms?: components["schemas"]["HarmSeen"][] | null;
            /** @description The client's id for this call. */
            id: string;
            /** @description The server that it runs on. */
            server?: string | null;
            /** @description Whether it starts a sub-agent: the limits on sub-agents count that before it does. */
            spawns?: boolean;
            /** @description The tool. */
            tool: string;
        };
        /** @description An exception, and what it would have done. */
        ProposedException: {
            /** @description What would have happened. */
            after: components["schemas"]["Tally"];
            /** @description What happened to them. */
            before: components["schemas"]["Tally"];
            /** @description The settings that change. */
            changes: components["schemas"]["SettingChange"][];
            /**
             * @description Whether the session of the incident would not have been stopped by this guard; null if its calls
             *     are not kept any more.
             */
            helps: boolean | null;
            /** @description A word for it, such as `tool_limits` or `allow_deed`; with a number where there are several. */
            id: string;
            /** @description Sessions of the agent that it was tried on. */
            sessions: number;
            /** @description What it does, in a sentence. */
            words: string;
        };
        /** @description A window of a provider, such as the five hours of a subscription, as its last answer reported it. */
        Quota: {
            /** @description The provider. */
            provider: string;
            /**
             * Format: int64
             * @description When it begins anew, in milliseconds since 1970.
             */
            resets_ms: number;
            /**
             * Format: double
             * @description The share that is used, from 0 to 1.
             */
            used: number;
            /** @description Its name for the window: `5h`, `7d`, `primary`. */
            window: string;
        };
        /**
         * @description How far a harm reaches.
         * @enum {string}
         */
        ReachSeen: "item" | "directory" | "workspace" | "outside" | "remote" | "home" | "system" | "production";
        /** @description Whether the server can do its work. */
        Readiness: {
            /** @description Whether it works without its database, as the policies' fail mode says. */
            degraded: boolean;
            /** @description What is wrong, in words; null if nothing is. */
            detail: string | null;
            /**
             * Format: int64
             * @description Records that wait to be written.
             */
            queue_depth: number;
            /** @description Whether it can. */
            ready: boolean;
            /** @description `ok`, `failed`, or `none` for a server that keeps nothing. */
            store: string;
        };
        /** @description How a call ended. */
        Receipt: {
            /** @description The client's id for the call. */
            id: string;
            /** @description The nested scopes in which it was made, the outermost first. */
            scope?: string[];
            /** @description How it ended. */
            status: components["schemas"]["Ended"];
            /** @description A model's answer, or a tool's result. */
            text?: string | null;
            /** @description The tokens that it used, by the provider's figures. */
            usage?: components["schemas"]["Used"];
            /**
             * @description Whether to answer only when it is on disk. A session that is dead always is.
             * @default true
             */
            wait: boolean;
        };
        /**
         * @description Whether what is lost comes back.
         * @enum {string}
         */
        RecoverySeen: "session" | "cache" | "version_control" | "elsewhere" | "unknown" | "none";
        /** @description A refusal: an error whose code is a guard's, with what was decided. */
        Refusal: {
            /** @description `session_killed…`, a guard's code for why, or one of the API's own codes. */
            code: string;
            decision?: components["schemas"]["Decided"] | null;
            /** @description What went wrong, in words, and what to do about it. */
            detail: string;
            /** @description Which scope is over, if one is: `session`, or its `agent` or `project`, which may be cleared. */
            ended?: string | null;
            /** @description The fields that are wrong; none for a refusal. */
            errors: components["schemas"]["FieldFault"][];
            /**
             * Format: int32
             * @description The status.
             */
            status: number;
            /** @description The status in words. */
            title: string;
            /** @description Always `about:blank`: the code tells more. */
            type: string;
        };
        /** @description A refused call that can be allowed once, or was. */
        RefusedCall: {
            /** @description The agent. */
            agent: string;
            /** @description Who has allowed it. */
            allowed_by: string | null;
            /** @description Why. */
            allowed_why: string | null;
            /**
             * @description What it is called with, without secrets. A list holds the first 2,000 characters,
             *     `GET /api/allow/{code}` all of them.
             */
            asked: string;
            /**
             * Format: int64
             * @description Characters of the whole text.
             */
            asked_chars: number;
            /** @description The code that the refusal names. */
            code: string;
            /** @description Why it was refused. */
            explain: string;
            /** @description What it would do, the worst first. */
            harms: components["schemas"]["Would"][];
            /**
             * Format: int64
             * @description When it was refused last.
             */
            refused_ms: number;
            /** @description The nested scopes in which it was made, one below the other. */
            scope: string | null;
            /** @description The server that it runs on. */
            server: string | null;
            /** @description The session. */
            session: string;
            /** @description The tool. */
            tool: string;
            /**
             * Format: int64
             * @description Characters of the call behind the whole text, which were not kept. A call with any cannot be
             *     allowed.
             */
            unkept_chars: number;
            /**
             * Format: int64
             * @description Until when it may then be made, once.
             */
            until_ms: number | null;
        };
        /** @description Refused calls that can be allowed. */
        RefusedCalls: {
            /** @description Those of the last hour, the newest first. */
            items: components["schemas"]["RefusedCall"][];
        };
        /** @description An agent that was removed. */
        RemovedAgent: {
            /** @description Its name. */
            name: string;
            /** @description Whether it is paused. It stays so. */
            paused: boolean;
            /**
             * Format: int64
             * @description When. A later use lists it again.
             */
            removed_ms: number;
            /** @description Whether it is stopped. It stays so: its calls are refused until it is resumed. */
            stopped: boolean;
            /** @description What was done and what stays, in sentences. */
            text: string;
        };
        /** @description How far a call is. */
        Report: {
            /** @description The client's id for the call. */
            id: string;
            /**
             * Format: int64
             * @description Tokens of the answer so far.
             */
            output_tokens?: number;
            /** @description The nested scopes in which it was made, the outermost first. */
            scope?: string[];
            /** @description What was said since the last report. */
            text?: string;
            /**
             * Format: int64
             * @description Answers when the call is to be stopped, or after so many milliseconds.
             */
            wait_ms?: number;
        };
        /** @description A request body, secrets removed. */
        RequestBody: {
            /**
             * Format: int64
             * @description How many characters it had in full.
             */
            chars: number;
            /** @description Whether it is shortened here. */
            cut: boolean;
            /** @description Its beginning: at most 32 KB. */
            text: string;
        };
        /** @description How many days records are kept; null means forever. */
        Retention: {
            /**
             * Format: int32
             * @description Calls (daily totals are kept).
             */
            calls_days: number | null;
            /**
             * Format: int32
             * @description Alerts that were delivered or given up.
             */
            deliveries_days: number | null;
            /**
             * Format: int32
             * @description Requests and answers kept as evidence of incidents.
             */
            evidence_days: number | null;
            /**
             * Format: int32
             * @description Incidents, with their evidence.
             */
            incidents_days: number | null;
            /**
             * Format: int32
             * @description Requests and answers of single calls.
             */
            payloads_days: number | null;
            /**
             * Format: int32
             * @description Sessions, counted from their last use.
             */
            sessions_days: number | null;
        };
        /**
         * @description What a key may do, from least to most.
         * @enum {string}
         */
        Role: "metrics" | "agent" | "viewer" | "operator" | "admin";
        /** @description A session or an agent as it is now. */
        Row: {
            /** @description The agent that it belongs to; empty for the project. */
            agent: string;
            /**
             * Format: double
             * @description Dollars spent.
             */
            cost_usd: number;
            /**
             * Format: int64
             * @description Calls that run.
             */
            in_flight: number;
            /**
             * Format: int64
             * @description Input tokens.
             */
            input_tokens: number;
            /** @description `project`, `agent`, `session` or `nested`. */
            kind: string;
            /**
             * Format: int64
             * @description Model calls.
             */
            model_calls: number;
            /** @description What people call it. */
            name: string;
            /**
             * Format: int64
             * @description When it was opened.
             */
            opened_ms: number;
            /**
             * Format: int64
             * @description Output tokens.
             */
            output_tokens: number;
            /**
             * Format: double
             * @description Dollars set aside for calls that run.
             */
            reserved_usd: number;
            /** @description How it stands, with all that is above it. */
            standing: components["schemas"]["ScopeStanding"];
            /** @description `running`, `paused` or `killed`: whether its own calls go through. */
            state: string;
            /**
             * Format: int64
             * @description Tool calls.
             */
            steps: number;
            /**
             * Format: int64
             * @description When it was last used.
             */
            used_ms: number;
            /** @description Why it is paused or killed. */
            why: string | null;
        };
        /** @description One step of a ladder. */
        Rung: {
            /**
             * Format: int64
             * @description When first.
             */
            at_ms: number;
            /**
             * Format: int64
             * @description The count at which it was done first.
             */
            count: number;
            /** @description Why, in a sentence, at the last count. */
            explain: string;
            /**
             * Format: int64
             * @description The count at which it was done last.
             */
            last_count: number;
            /**
             * Format: int64
             * @description When last.
             */
            last_ms: number;
            /**
             * Format: int64
             * @description The count from which on it is done.
             */
            limit: number;
            next: components["schemas"]["Next"] | null;
            /**
             * @description Whether telemetry told of the call, after it had run: then the step holds from
             *     the next call on.
             */
            observed: boolean;
            /**
             * @description What the agent was told: the note to the model, or the reason of the refusal. Null where
             *     only people were told.
             */
            said: string | null;
            /** @description What was done: `warn` (people were told), `steer` (the model was told), `block` or `kill`. */
            verdict: string;
        };
        /** @description A scope that runs, and how near it is to its limits. */
        Running: components["schemas"]["Row"] & {
            /**
             * @description Of an agent: the servers that fail, so that their calls are refused for a while. Of a session:
             *     the provider that it used last, if that fails.
             */
            failing?: components["schemas"]["FailingServer"][];
            /** @description What its guards measure, the nearest to its limit first; empty where nothing is limited. */
            limits: components["schemas"]["Limit"][];
            /** @description Of an agent: the windows that its providers have reported, the fullest first. */
            quotas?: components["schemas"]["Quota"][];
        };
        /** @description What was asked and answered, secrets removed. */
        Said: {
            /** @description What was asked. */
            request: string | null;
            /**
             * Format: int64
             * @description How many characters the request had in full.
             */
            request_chars: number;
            /** @description Whether the request is shortened here. */
            request_cut: boolean;
            /** @description What was answered. */
            response: string | null;
            /**
             * Format: int64
             * @description How many characters the answer had in full.
             */
            response_chars: number;
            /** @description Whether the answer is shortened here. */
            response_cut: boolean;
        };
        /**
         * @description How a session, an agent or a project stands.
         * @enum {string}
         */
        ScopeStanding: "running" | "waiting_for_approval" | "paused" | "idle" | "finished" | "stopped_by_guard" | "stopped_by_person";
        /** @description How a score was made. */
        Scoring: {
            /**
             * Format: double
             * @description The sum in percent of the threshold.
             */
            percent: number;
            /**
             * Format: double
             * @description Where a bar that shows it ends: twice the threshold.
             */
            scale_end: number;
            /**
             * Format: double
             * @description The sum.
             */
            score: number;
            /** @description What it is made of. */
            signals: components["schemas"]["SignalLine"][];
            /**
             * Format: double
             * @description What had to be exceeded.
             */
            threshold: number;
        };
        /** @description A pattern of secrets that only this project has. */
        SecretPattern: {
            /** @description The text in its place is `[redacted:name]`. */
            name: string;
            /** @description A regular expression; if it has a group, only the group is redacted. */
            regex: string;
        };
        /** @description Who has seen an incident. */
        Seen: {
            /**
             * Format: int64
             * @description When.
             */
            at_ms: number;
            /** @description Who. */
            by: string;
            /** @description What they had to say. */
            note: string;
        };
        /** @description A tool in a listing. */
        SeenTool: {
            /** @description Whether its server says that it destroys something. */
            destructive?: boolean;
            /** @description A digest of its description, 16 hexadecimal digits. */
            fingerprint: string;
            /** @description Invisible characters in that. */
            invisible?: string;
            /** @description Its name. */
            name: string;
            /** @description What its server says about it. */
            text?: string;
        };
        /** @description A session. */
        Session: components["schemas"]["Totals"] & {
            /** @description Its agent. */
            agent: string;
            /** @description The provider that it used last, if that fails, so that its calls are refused for a while. */
            failing?: components["schemas"]["FailingServer"][];
            /** @description The model that it used last. */
            model: string | null;
            /** @description Its name. */
            name: string;
            /** @description Its number; a session that was reset gets a new one. Null while it is not written yet. */
            number: string | null;
            /**
             * Format: int64
             * @description When it was opened.
             */
            opened_ms: number;
            /** @description The provider that it used last. */
            provider: string | null;
            /** @description How it stands, with its agent and its project. */
            standing: components["schemas"]["ScopeStanding"];
            /** @description `running`, `paused`, `killed` or `ended`: whether its own calls go through. */
            state: string;
            /**
             * @description What was ended above it, so that its calls are refused although it was not ended itself:
             *     `agent`, `project`, or null.
             */
            stopped_with: string | null;
            /** @description Its health tags, such as `loop_detected` or `budget_warning`. */
            tags: string[];
            /**
             * Format: int64
             * @description When it last did something.
             */
            used_ms: number;
            /** @description Why it is in this state. */
            why: string | null;
        };
        /** @description A session, and what it has in memory. */
        SessionDetail: components["schemas"]["Session"] & {
            live: components["schemas"]["Running"] | null;
            /** @description Whether another session of the same name was opened since, so that orders go to that one. */
            superseded: boolean;
        };
        /** @description A setting that changes. */
        SettingChange: {
            /** @description What it becomes. */
            after: unknown;
            /** @description What it was; null if it was not there. */
            before: unknown;
            /** @description Where it is in the policy, such as `loop.tools.get_build.end_at`. */
            path: string;
        };
        /** @description The settings of a project. */
        Settings: {
            /** @description Which requests and answers are kept. */
            capture: components["schemas"]["Capture"];
            /** @description The project's own patterns, besides the built-in ones. */
            redaction: components["schemas"]["SecretPattern"][];
            /** @description How many days records are kept. */
            retention: components["schemas"]["Retention"];
        };
        /** @description One line of a score. */
        SignalLine: {
            /**
             * Format: int32
             * @description How often.
             */
            count: number;
            /** @description What was counted. */
            name: string;
            /**
             * Format: double
             * @description Both multiplied.
             */
            score: number;
            /**
             * Format: double
             * @description What each counts for.
             */
            weight: number;
        };
        /** @description Whether people can sign in through an OpenID provider. */
        SignOn: {
            /** @description Whether they can; then `/api/sso/login` begins. */
            enabled: boolean;
        };
        /** @description Who muted something, and until when. */
        Silence: {
            /**
             * Format: int64
             * @description When.
             */
            at_ms: number;
            /** @description Who. */
            by: string;
            /** @description Why. */
            note: string;
            /**
             * Format: int64
             * @description Until when; null if for good.
             */
            until_ms: number | null;
        };
        /** @description How a model, or a provider, did. */
        SpeedLine: {
            /**
             * Format: int64
             * @description Calls that ended.
             */
            calls: number;
            /**
             * Format: int64
             * @description Those that were cut off or abandoned.
             */
            cancelled: number;
            /**
             * Format: double
             * @description Faults and errors, over all calls that were not cancelled: 0 to 1.
             */
            error_rate: number;
            /**
             * Format: int64
             * @description Those that were answered with an error of the caller's: a wrong key, a malformed request.
             */
            errors: number;
            /**
             * Format: int64
             * @description Those that the provider failed to answer: 5xx, 429, time-outs, broken answers.
             */
            faults: number;
            /**
             * Format: int64
             * @description Half of the streamed answers took this long or less to begin; null if there was none.
             */
            first_half_ms: number | null;
            /**
             * Format: int64
             * @description 95 of 100 streamed answers took this long or less to begin.
             */
            first_most_ms: number | null;
            /**
             * Format: int64
             * @description Half of the whole answers took this long or less; null if there was none.
             */
            half_ms: number | null;
            /** @description The model; empty for a line a provider. */
            model: string;
            /**
             * Format: int64
             * @description 95 of 100 whole answers took this long or less.
             */
            most_ms: number | null;
            /** @description The provider; empty where it is not known. */
            provider: string;
        };
        /** @description What was spent in one step. */
        Spent: {
            /**
             * Format: int64
             * @description The first millisecond of the step.
             */
            at_ms: number;
            /**
             * Format: int64
             * @description Calls of models and paid tools that ended, by when they were asked.
             */
            calls: number;
            /**
             * Format: double
             * @description Dollars.
             */
            cost_usd: number;
            /** @description The agent or the model; empty if the series is not split. */
            of: string;
        };
        /** @description What a guard says. */
        Spoken: {
            /**
             * @description What the model should be told, where the verdict is `steer` or stricter and a pattern guard
             *     decided: put it behind the tool's result.
             */
            advice?: string | null;
            /** @description Why, in a sentence. */
            explain: string;
            /** @description The guard. */
            guard: string;
            /** @description The limit. */
            limit: Record<string, never>;
            /** @description What was measured. */
            measured: Record<string, never>;
            /** @description Its code for why. */
            reason: string;
        };
        /** @description How a session stands. */
        Standing: {
            /** @description Which scope is over, if one is: `session`, or its `agent` or `project`, which may be cleared. */
            ended: string | null;
            /** @description The policy in force. */
            policy: unknown;
            /**
             * @description `running`, `paused`, `draining` (it is over, and what runs may finish) or `killed`: by itself,
             *     or with its agent or the project.
             */
            state: string;
            /** @description Changes when anything in this answer changes. */
            version: string;
            /** @description Why it is paused or killed. */
            why: string | null;
        };
        /** @description How many sessions stand how. Each is in exactly one of the counts. */
        Standings: {
            /** @description The two above together. */
            busy: number;
            /** @description Those whose host said that they are over. */
            finished: number;
            /** @description Those that may go on and did nothing for 15 minutes. */
            idle: number;
            /**
             * Format: int64
             * @description Calls that run in them.
             */
            in_flight: number;
            /** @description Those that were ended, by a guard or a person. */
            killed: number;
            /** @description Those that are held, themselves or with what is above them. */
            paused: number;
            /** @description Those that may go on and did something in the last 15 minutes. */
            running: number;
            /** @description Those that a guard ended, themselves or with what is above them. */
            stopped_by_guard: number;
            /** @description Those that a person ended, themselves or with what is above them. */
            stopped_by_person: number;
            /** @description Those with a call that waits for a person's approval. */
            waiting_for_approval: number;
        };
        /** @description What runs. */
        Status: {
            cluster: components["schemas"]["Cluster"] | null;
            database: components["schemas"]["Degraded"] | null;
            key_grace: components["schemas"]["KeyGrace"] | null;
            /** @description The cursor of the next page; null if this is the last. */
            next: string | null;
            /** @description The project as a whole. */
            project: components["schemas"]["Running"];
            /** @description Agents, sessions and what is nested in them: a page of those that were asked for. */
            scopes: components["schemas"]["Running"][];
            /** @description Sessions in memory, whatever was asked for. */
            sessions: components["schemas"]["Standings"];
        };
        /** @description A session as it stood when a call was over, or was refused. */
        Stood: {
            /**
             * Format: int64
             * @description The moment.
             */
            at_ms: number;
            /** @description The call's id. */
            call: string;
            /** @description The how-manieth of the session's calls that are kept this is, from one. */
            number: number;
            /**
             * @description The session first, then the scope inside it that the call was made in, then its agent and the
             *     project. Of those above this tells what this session has added. Empty if the facts of its
             *     calls are not known any more.
             */
            scopes: components["schemas"]["StoodScope"][];
        };
        /** @description A scope at that moment. */
        StoodScope: {
            /**
             * Format: double
             * @description Dollars spent.
             */
            cost_usd: number;
            /**
             * Format: int64
             * @description Calls that ran.
             */
            in_flight: number;
            /**
             * Format: int64
             * @description Input tokens, without those from a cache.
             */
            input_tokens: number;
            /** @description `session`, `nested`, `agent` or `project`. */
            kind: string;
            /** @description What its guards measured, under the policy of the time, the nearest to its limit first. */
            limits: components["schemas"]["Limit"][];
            /**
             * Format: int64
             * @description Model calls.
             */
            model_calls: number;
            /** @description Its name; the agent's and the project's are known. */
            name: string;
            /**
             * Format: int64
             * @description Output tokens.
             */
            output_tokens: number;
            /**
             * Format: double
             * @description Dollars set aside for calls that ran.
             */
            reserved_usd: number;
            /**
             * Format: int64
             * @description Tool calls.
             */
            steps: number;
        };
        /** @description A session that would have been stopped. */
        Stopped: {
            /** @description Its agent. */
            agent: string;
            /**
             * Format: int64
             * @description When.
             */
            at_ms: number;
            before?: components["schemas"]["StoppedBy"] | null;
            /** @description The call it would have happened at. */
            call: string;
            /** @description Calls that ran, and would not have been made. */
            calls_after: number;
            /**
             * Format: double
             * @description Dollars that they cost.
             */
            cost_after_usd: number;
            /** @description Why, in a sentence. */
            explain: string;
            /** @description The guard. */
            guard: string;
            /** @description Its number. */
            number: string;
            /** @description Its code for why. */
            reason: string;
            /** @description Its name. */
            session: string;
            /** @description `block` or `kill`. */
            verdict: string;
            /** @description Whether it was stopped at the time as well. */
            was_stopped: boolean;
        };
        /** @description What stopped a session at the time. */
        StoppedBy: {
            /**
             * Format: int64
             * @description When.
             */
            at_ms: number;
            /** @description The call it happened at. */
            call: string;
            /** @description The guard. */
            guard: string;
            /** @description Its code for why. */
            reason: string;
            /** @description `block` or `kill`. */
            verdict: string;
        };
        /** @description What guards did. */
        Tally: {
            /** @description Calls that were refused. */
            refused: number;
            /** @description Sessions that were stopped: ended, or with a call that was refused. */
            stopped: number;
            /** @description Calls that passed with a warning. */
            warned: number;
        };
        /** @description A target. */
        Target: {
            /** @description Whether it is in use. */
            active: boolean;
            /** @description The agent it is for; null for all of the project. */
            agent: string | null;
            /**
             * Format: int64
             * @description When it was last changed.
             */
            changed_ms: number;
            /** @description What it wants to hear of. */
            events: string[];
            /** @description Its id. */
            id: string;
            /** @description `webhook`, `slack` or `email`. */
            kind: string;
            /**
             * Format: int64
             * @description When it was made.
             */
            made_ms: number;
            /** @description What people call it. */
            name: string;
            /** @description Where it goes, without what may be secret. */
            summary: string;
        };
        /** @description A target to be made. */
        TargetOrder: {
            /** @description Whether it is in use. */
            active: boolean;
            /** @description The agent it is for; null for all of the project. */
            agent: string | null;
            /** @description What it wants to hear of. */
            events: components["schemas"]["AlertOn"][];
            /** @description What people call it. */
            name: string;
            target?: components["schemas"]["Address"] | null;
        };
        /** @description A test that is on its way. */
        Tested: {
            /** @description Its delivery; how it ended stands in the log. */
            delivery: string;
        };
        /** @description A tool of an MCP server. */
        Tool: {
            /** @description Who has accepted a change last. */
            accepted_by: string | null;
            /** @description Whether it was added after the tools of its server were first seen. */
            added: boolean;
            /**
             * @description Whether it is described otherwise than when it was first seen, or accepted, or was added
             *     later.
             */
            changed: boolean;
            /**
             * Format: int64
             * @description When it changed.
             */
            changed_ms: number | null;
            /** @description Whether its server says that it destroys something. */
            destructive: boolean;
            /**
             * Format: int64
             * @description When it was first seen.
             */
            first_ms: number;
            /** @description What its server says about it, as it is accepted: the beginning, without secrets. */
            known_text: string;
            /** @description What is odd about it: invisible characters, the name of another server's tool. */
            notes: string[];
            /** @description The same, as it was said last. */
            seen_text: string;
            /** @description The server. */
            server: string;
            /** @description Its name. */
            tool: string;
        };
        /** @description Tools of MCP servers. */
        Tools: {
            /** @description By server and name. */
            items: components["schemas"]["Tool"][];
        };
        /** @description How much a session may use in addition; at least one of the four. */
        TopUp: {
            /** @description The person who says so, where a client speaks for several. */
            by?: string | null;
            /**
             * Format: double
             * @description Dollars.
             * @example 5
             */
            cost_usd?: number;
            /** @description Why. */
            reason?: string;
            /**
             * Format: int64
             * @description Tool calls, and as many model calls.
             * @example 50
             */
            steps?: number;
            /**
             * Format: int64
             * @description Seconds.
             * @example 1800
             */
            time_s?: number;
            /**
             * Format: int64
             * @description Tokens: input, output and both.
             * @example 200000
             */
            tokens?: number;
        };
        /** @description What calls came to. */
        Totals: {
            /**
             * Format: int64
             * @description Calls, models and tools together.
             */
            calls: number;
            /**
             * Format: double
             * @description Dollars.
             */
            cost_usd: number;
            /**
             * Format: int64
             * @description Trips that blocked or killed.
             */
            incidents: number;
            /**
             * Format: int64
             * @description Loops: all trips of one streak count once.
             */
            loops: number;
            /**
             * Format: int64
             * @description Tokens of all kinds.
             */
            tokens: number;
        };
        /** @description What to try. */
        Trial: {
            /** @description Only this agent's sessions. */
            agent?: string | null;
            /**
             * Format: int64
             * @description Sessions that were opened at this time or later, in milliseconds since 1970.
             */
            from?: number | null;
            /** @description The whole policy. */
            policy: Record<string, never>;
            /**
             * Format: int32
             * @description The last so many sessions.
             */
            sessions?: number | null;
            /**
             * Format: int64
             * @description Sessions that were opened before this time, in milliseconds since 1970.
             */
            to?: number | null;
        };
        /** @description A line of the answer: `progress` while it works, `result` at the end. */
        TrialLine: {
            /** @description How far it is. */
            progress: components["schemas"]["Far"];
        } | {
            /** @description What came of it. */
            result: components["schemas"]["Outcome"];
        } | {
            /** @description It could not go on. */
            failed: string;
        };
        /** @description What would be said about it. */
        Tried: {
            /** @description Why, in one sentence. */
            because: string;
            /** @description The commands that were read in it. */
            commands: string[];
            /** @description What harm it would do, the worst first. */
            harms: components["schemas"]["TriedHarm"][];
            /** @description The safer way, if one is needed. */
            instead: string;
            /** @description `none`, `minor`, `serious` or `catastrophic`. */
            severity: string;
            /** @description The tool. */
            tool: string;
            /** @description What each preset would do about the first such call of a session. */
            verdict: components["schemas"]["TriedVerdict"];
        };
        /** @description One harm of a call that was tried. */
        TriedHarm: {
            /** @description What sort of harm. */
            kind: string;
            /** @description How far it reaches. */
            reach: string;
            /** @description Whether what is lost comes back. */
            recovery: string;
            /** @description How bad that is. */
            severity: string;
            /** @description What it is done to. */
            target: string;
            /** @description What is done. */
            verb: string;
        };
        /** @description What each preset would do: `allow`, `warn`, `steer`, `ask`, `block` or `kill`. */
        TriedVerdict: {
            balanced: string;
            observe: string;
            strict: string;
        };
        /** @description Tokens that a call used. */
        Used: {
            /**
             * Format: int64
             * @description Read from the provider's cache.
             * @default 0
             */
            cache_read: number;
            /**
             * Format: int64
             * @description Written to it.
             * @default 0
             */
            cache_write: number;
            /**
             * Format: int64
             * @description Of the prompt, without those of the cache.
             * @default 0
             */
            input: number;
            /**
             * Format: int64
             * @description Of the answer.
             * @default 0
             */
            output: number;
        };
        /** @description One version of a document. */
        Version: components["schemas"]["Listed"] & {
            /** @description The document; null where it went back to the default. */
            document: unknown;
        };
        /** @description Calls that wait for a person. */
        Waiting: {
            /** @description The longest waiting first. */
            items: components["schemas"]["Approval"][];
        };
        WholePolicy: {
            access: {
                action: string;
                allow: unknown[];
                ask: unknown[];
                deny: unknown[];
                pin_tools: string;
                rules: unknown[];
            };
            agent: {
                access: {
                    action: string;
                    allow: unknown[];
                    ask: unknown[];
                    deny: unknown[];
                    pin_tools: string;
                    rules: unknown[];
                };
                ask_timeout_s: number;
                breaker: {
                    action: string;
                    cooldown_seconds: number;
                    enabled: boolean;
                    half_open_max_calls: number;
                    open_after_failures: number;
                };
                budget: {
                    action: string;
                    ceiling_share: number;
                    max_cost_usd: number | null;
                    per: string;
                    reservation: string;
                    soft_alert_threshold_usd: number | null;
                    tool_prices: Record<string, never>;
                    wait_s: number;
                };
                destructive: {
                    action: string;
                    enabled: boolean;
                    ends: string;
                    exempt_targets: unknown[];
                    max_deletes: number;
                    max_same_target: number;
                    window_s: number;
                };
                ending: {
                    reserve_for_answer: string;
                    wrap_up_at: string;
                };
                fail_mode: string;
                harm: {
                    allow: unknown[];
                    catastrophic: string;
                    enabled: boolean;
                    recoverable: string;
                    secrets: string;
                    serious: string;
                    unknown: string;
                    unreadable: string;
                };
                loop: {
                    action: string;
                    block_at: (number | null) | "off";
                    enabled: boolean;
                    end_at: (number | null) | "off";
                    ends: string;
                    max_wait_s: number;
                    steer_at: (number | null) | "off";
                    threshold: number;
                    tools: Record<string, never>;
                };
                mode: string;
                offline_calls: number;
                quota: {
                    action: string;
                    max_used: string;
                };
                similarity: {
                    action: string;
                    enabled: boolean;
                    ends: string;
                    prompt_weight: number;
                    response_weight: number;
                    threshold: number;
                    tool_call_weight: number;
                    window_size: number;
                };
                steps: {
                    action: string;
                    max_model_calls: number | null;
                    max_steps: number | null;
                };
                strikes: {
                    action: string;
                    consecutive_blocks: number;
                    consecutive_errors: number;
                    enabled: boolean;
                    provider_errors: boolean;
                };
                swarm: {
                    action: string;
                    max_agents: number | null;
                    max_depth: number | null;
                    max_parallel: number | null;
                    max_spawns_per_minute: number | null;
                };
                text_loop: {
                    action: string;
                    enabled: boolean;
                    end_at: (number | null) | "off";
                    ends: string;
                    max_repeated_answers: number;
                    steer_at: (number | null) | "off";
                };
                time: {
                    action: string;
                    max_wall_time_seconds: number | null;
                };
                tokens: {
                    action: string;
                    input_token_limit: number | null;
                    output_token_limit: number | null;
                    total_token_limit: number | null;
                };
                velocity: {
                    action: string;
                    max_tokens_per_minute: number | null;
                    max_usd_per_minute: number | null;
                };
            };
            ask_timeout_s: number;
            budget: {
                action: string;
                ceiling_share: number;
                max_cost_usd: number | null;
                per: string;
                reservation: string;
                soft_alert_threshold_usd: number | null;
                tool_prices: Record<string, never>;
                wait_s: number;
            };
            destructive: {
                action: string;
                enabled: boolean;
                ends: string;
                exempt_targets: unknown[];
                max_deletes: number;
                max_same_target: number;
                window_s: number;
            };
            ending: {
                reserve_for_answer: string;
                wrap_up_at: string;
            };
            fail_mode: string;
            harm: {
                allow: unknown[];
                catastrophic: string;
                enabled: boolean;
                recoverable: string;
                secrets: string;
                serious: string;
                unknown: string;
                unreadable: string;
            };
            loop: {
                action: string;
                block_at: (number | null) | "off";
                enabled: boolean;
                end_at: (number | null) | "off";
                ends: string;
                max_wait_s: number;
                steer_at: (number | null) | "off";
                threshold: number;
                tools: Record<string, never>;
            };
            mode: string;
            nested: {
                access: {
                    action: string;
                    allow: unknown[];
                    ask: unknown[];
                    deny: unknown[];
                    pin_tools: string;
                    rules: unknown[];
                };
                ask_timeout_s: number;
                breaker: {
                    action: string;
                    cooldown_seconds: number;
                    enabled: boolean;
                    half_open_max_calls: number;
                    open_after_failures: number;
                };
                budget: {
                    action: string;
                    ceiling_share: number;
                    max_cost_usd: number | null;
                    per: string;
                    reservation: string;
                    soft_alert_threshold_usd: number | null;
                    tool_prices: Record<string, never>;
                    wait_s: number;
                };
                destructive: {
                    action: string;
                    enabled: boolean;
                    ends: string;
                    exempt_targets: unknown[];
                    max_deletes: number;
                    max_same_target: number;
                    window_s: number;
                };
                ending: {
                    reserve_for_answer: string;
                    wrap_up_at: string;
                };
                fail_mode: string;
                harm: {
                    allow: unknown[];
                    catastrophic: string;
                    enabled: boolean;
                    recoverable: string;
                    secrets: string;
                    serious: string;
                    unknown: string;
                    unreadable: string;
                };
                loop: {
                    action: string;
                    block_at: (number | null) | "off";
                    enabled: boolean;
                    end_at: (number | null) | "off";
                    ends: string;
                    max_wait_s: number;
                    steer_at: (number | null) | "off";
                    threshold: number;
                    tools: Record<string, never>;
                };
                mode: string;
                offline_calls: number;
                quota: {
                    action: string;
                    max_used: string;
                };
                similarity: {
                    action: string;
                    enabled: boolean;
                    ends: string;
                    prompt_weight: number;
                    response_weight: number;
                    threshold: number;
                    tool_call_weight: number;
                    window_size: number;
                };
                steps: {
                    action: string;
                    max_model_calls: number | null;
                    max_steps: number | null;
                };
                strikes: {
                    action: string;
                    consecutive_blocks: number;
                    consecutive_errors: number;
                    enabled: boolean;
                    provider_errors: boolean;
                };
                swarm: {
                    action: string;
                    max_agents: number | null;
                    max_depth: number | null;
                    max_parallel: number | null;
                    max_spawns_per_minute: number | null;
                };
                text_loop: {
                    action: string;
                    enabled: boolean;
                    end_at: (number | null) | "off";
                    ends: string;
                    max_repeated_answers: number;
                    steer_at: (number | null) | "off";
                };
                time: {
                    action: string;
                    max_wall_time_seconds: number | null;
                };
                tokens: {
                    action: string;
                    input_token_limit: number | null;
                    output_token_limit: number | null;
                    total_token_limit: number | null;
                };
                velocity: {
                    action: string;
                    max_tokens_per_minute: number | null;
                    max_usd_per_minute: number | null;
                };
            };
            offline_calls: number;
            preset: string;
            project: {
                access: {
                    action: string;
                    allow: unknown[];
                    ask: unknown[];
                    deny: unknown[];
                    pin_tools: string;
                    rules: unknown[];
                };
                ask_timeout_s: number;
                breaker: {
                    action: string;
                    cooldown_seconds: number;
                    enabled: boolean;
                    half_open_max_calls: number;
                    open_after_failures: number;
                };
                budget: {
                    action: string;
                    ceiling_share: number;
                    max_cost_usd: number | null;
                    per: string;
                    reservation: string;
                    soft_alert_threshold_usd: number | null;
                    tool_prices: Record<string, never>;
                    wait_s: number;
                };
                destructive: {
                    action: string;
                    enabled: boolean;
                    ends: string;
                    exempt_targets: unknown[];
                    max_deletes: number;
                    max_same_target: number;
                    window_s: number;
                };
                ending: {
                    reserve_for_answer: string;
                    wrap_up_at: string;
                };
                fail_mode: string;
                harm: {
                    allow: unknown[];
                    catastrophic: string;
                    enabled: boolean;
                    recoverable: string;
                    secrets: string;
                    serious: string;
                    unknown: string;
                    unreadable: string;
                };
                loop: {
                    action: string;
                    block_at: (number | null) | "off";
                    enabled: boolean;
                    end_at: (number | null) | "off";
                    ends: string;
                    max_wait_s: number;
                    steer_at: (number | null) | "off";
                    threshold: number;
                    tools: Record<string, never>;
                };
                mode: string;
                offline_calls: number;
                quota: {
                    action: string;
                    max_used: string;
                };
                similarity: {
                    action: string;
                    enabled: boolean;
                    ends: string;
                    prompt_weight: number;
                    response_weight: number;
                    threshold: number;
                    tool_call_weight: number;
                    window_size: number;
                };
                steps: {
                    action: string;
                    max_model_calls: number | null;
                    max_steps: number | null;
                };
                strikes: {
                    action: string;
                    consecutive_blocks: number;
                    consecutive_errors: number;
                    enabled: boolean;
                    provider_errors: boolean;
                };
                swarm: {
                    action: string;
                    max_agents: number | null;
                    max_depth: number | null;
                    max_parallel: number | null;
                    max_spawns_per_minute: number | null;
                };
                text_loop: {
                    action: string;
                    enabled: boolean;
                    end_at: (number | null) | "off";
                    ends: string;
                    max_repeated_answers: number;
                    steer_at: (number | null) | "off";
                };
                time: {
                    action: string;
                    max_wall_time_seconds: number | null;
                };
                tokens: {
                    action: string;
                    input_token_limit: number | null;
                    output_token_limit: number | null;
                    total_token_limit: number | null;
                };
                velocity: {
                    action: string;
                    max_tokens_per_minute: number | null;
                    max_usd_per_minute: number | null;
                };
            };
            quota: {
                action: string;
                max_used: string;
            };
            similarity: {
                action: string;
                enabled: boolean;
                ends: string;
                prompt_weight: number;
                response_weight: number;
                threshold: number;
                tool_call_weight: number;
                window_size: number;
            };
            steps: {
                action: string;
                max_model_calls: number | null;
                max_steps: number | null;
            };
            strikes: {
                action: string;
                consecutive_blocks: number;
                consecutive_errors: number;
                enabled: boolean;
                provider_errors: boolean;
            };
            swarm: {
                action: string;
                max_agents: number | null;
                max_depth: number | null;
                max_parallel: number | null;
                max_spawns_per_minute: number | null;
            };
            text_loop: {
                action: string;
                enabled: boolean;
                end_at: (number | null) | "off";
                ends: string;
                max_repeated_answers: number;
                steer_at: (number | null) | "off";
            };
            time: {
                action: string;
                max_wall_time_seconds: number | null;
            };
            tokens: {
                action: string;
                input_token_limit: number | null;
                output_token_limit: number | null;
                total_token_limit: number | null;
            };
            velocity: {
                action: string;
                max_tokens_per_minute: number | null;
                max_usd_per_minute: number | null;
            };
        };
        /** @description Why something is done. */
        Why: {
            /** @description The person who says so, where a client speaks for several. */
            by?: string | null;
            /** @description Why. */
            reason?: string;
        };
        /** @description One thing that a call would do. */
        Would: {
            /** @description What would happen and why it matters. */
            because: string;
            /** @description The sort of harm: `destroys`, `sends_secret` and so on. */
            kind: string;
            /** @description `none`, `minor`, `serious` or `catastrophic`. */
            severity: string;
        };
    };
    responses: never;
    parameters: never;
    requestBodies: never;
    headers: never;
    pathItems: never;
}
export type $defs = Record<string, never>;
export type operations = Record<string, never>;
