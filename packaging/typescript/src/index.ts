export type * from "./contract.js";
export type { AgentDelta as AgentEvent } from "./contract.js";
export { Client, type AskOptions, type CallOptions, type ClientOptions, type UploadOptions } from "./client.js";
export { ConnectionLost, HeadraceError } from "./errors.js";
export { Fold, foldEvents, TERMINAL } from "./fold.js";
export type { Block, BlockKind, SubagentState, TaskState } from "./fold.js";
export type { StreamOptions } from "./reading.js";
export { RunStream } from "./run_stream.js";
export type { ChatEvent } from "./watches.js";
