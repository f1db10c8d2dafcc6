// @ts-check
// The shapes of the inspector's API, as `src/ors/server/admin` and `src/ors/inspector` send them.

/**
 * GET /-/api/about
 * @typedef {object} About
 * @property {string} version
 * @property {string | null} server The address of the server, where this page is not served by it.
 * @property {boolean} live Whether sessions are shown.
 * @property {boolean} runs Whether recorded runs are shown.
 * @property {boolean} serves Whether there is a server at all, not only a folder of runs.
 */

/**
 * GET /-/api/environments; of servers without that interface, made from the standard's endpoints.
 * @typedef {object} EnvironmentInfo
 * @property {string} name
 * @property {string} description
 * @property {{name: string, type: string}[]} splits
 * @property {Tool[]} tools
 * @property {Tool[]} task_tools
 * @property {string[]} required_secrets
 * @property {[number, number] | null} reward_range
 * @property {Record<string, string>} reward_components
 */

/**
 * GET /-/environments/{name}, as far as it is more than the above
 * @typedef {object} Description
 * @property {string | null} version
 * @property {string | null} hash
 * @property {string | null} license
 * @property {string[]} authors
 * @property {{sandbox: boolean, network: boolean | null, memory: number | null}} needs
 * @property {string[]} required_secrets
 * @property {{schema: Record<string, any>, values: Record<string, any>}} [parameters]
 */

/**
 * @typedef {object} Tool
 * @property {string} name
 * @property {string} description
 * @property {Record<string, any> | null} input_schema
 * @property {boolean} [terminal] Whether it takes the agent's last message.
 */

/**
 * GET /-/api/tasks
 * @typedef {object} FoundTasks
 * @property {{index: number, task: any}[]} found
 * @property {number | null} next Where to go on; null at the end.
 */

/**
 * Event `sessions` of GET /-/api/live, and `session` of GET /-/api/calls/{sid}.
 * @typedef {object} SessionRow
 * @property {string} sid
 * @property {string} environment
 * @property {string} state
 * @property {string} failure
 * @property {number} created
 * @property {number} seen
 * @property {number} calls
 * @property {number} running
 * @property {number | null} reward
 * @property {Record<string, number>} components Sums of named rewards.
 * @property {boolean} finished
 * @property {Record<string, any>} task
 */

/** @typedef {{total: number, offset: number, sessions: SessionRow[]}} SessionPage */

/**
 * @typedef {object} EpisodeTotals
 * @property {number} ended
 * @property {number} scored
 * @property {number} solved
 * @property {number} reward
 */

/**
 * Events `point` and `history` of GET /-/api/live: one second.
 * @typedef {object} Point
 * @property {number} at
 * @property {number} sessions
 * @property {number} running
 * @property {number} calls
 * @property {number} refused
 * @property {number} failed
 * @property {number | null} p50
 * @property {number | null} p95
 * @property {number | null} p99
 * @property {Record<string, EpisodeTotals>} [episodes]
 */

/**
 * Event `episodes` of GET /-/api/live.
 * @typedef {object} EndedEpisode
 * @property {string} sid
 * @property {string} environment
 * @property {string} outcome
 * @property {number | null} reward
 * @property {Record<string, number>} components Sums of named rewards.
 * @property {number} calls
 * @property {number} ended
 * @property {number} seconds
 * @property {Record<string, any>} task
 */

/**
 * GET /-/api/runs: a run that is not read yet has a name only, or a problem.
 * @typedef {object} RunSummary
 * @property {string} name
 * @property {string} [problem]
 * @property {boolean} [growing]
 * @property {number} [changed]
 * @property {number} [episodes]
 * @property {number} [tasks]
 * @property {string[]} [agents]
 * @property {string[]} [environments]
 * @property {Record<string, number>} [outcomes]
 * @property {number} [unrewarded]
 * @property {number | null} [mean]
 * @property {number | null} [error]
 * @property {{name: string, mean: number, error: number | null}[]} [components]
 * @property {[number, number] | null} [range] The declared range of rewards.
 * @property {{k: number, any: number, all: number}[]} [passes]
 * @property {number} [tokens]
 * @property {number | null} [cost]
 * @property {number} [unknown]
 * @property {number} [seconds]
 * @property {number} [unreadable]
 */

/**
 * A row of GET /-/api/runs/episodes.
 * @typedef {object} EpisodeRow
 * @property {string} id
 * @property {string} task
 * @property {string} environment
 * @property {number} sample
 * @property {string} outcome
 * @property {string} detail
 * @property {number | null} reward
 * @property {Record<string, number>} components
 * @property {number} calls
 * @property {number} tokens
 * @property {number} seconds
 * @property {number} started
 */

/** @typedef {{id: string | null, count: number, mean: number | null}} PairSide */

/**
 * A row of GET /-/api/runs/compare.
 * @typedef {object} TaskPair
 * @property {string} task
 * @property {string} environment
 * @property {PairSide} a
 * @property {PairSide} b
 * @property {number | null} difference
 */

/**
 * A bar of a histogram, with one count for each series.
 * @typedef {object} Bar
 * @property {number} from
 * @property {number} to
 * @property {number | null} least
 * @property {number | null} most
 * @property {number[]} counts
 */

/**
 * An event of a stream; a comment has the name ":".
 * @typedef {object} StreamEvent
 * @property {string} name
 * @property {string} data
 * @property {Record<string, string>} more
 * @property {string} raw
 */

export {};
