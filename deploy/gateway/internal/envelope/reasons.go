package envelope

import "google.golang.org/grpc/codes"

// StatusForReason returns the HTTP status of a reason of headrace/errors.py, or 500 for an unknown one.
func StatusForReason(reason string) int {
	if code, ok := codesByReason[reason]; ok {
		return Status[code]
	}
	return 500
}

// IsKnownReason reports whether a service of the suite can give this reason.
func IsKnownReason(reason string) bool {
	_, ok := codesByReason[reason]
	return ok
}

// codesByReason is the table of headrace/errors.py, for failures that arrive as events;
// tests/conformance/test_errors.py checks all of it.
var codesByReason = map[string]codes.Code{
	"BAD_FRAME":               codes.Unavailable,
	"BUDGET_EXCEEDED":         codes.ResourceExhausted,
	"CHAT_BUSY":               codes.Aborted,
	"CLAIMED":                 codes.Aborted,
	"CONTENT_FILTERED":        codes.FailedPrecondition,
	"CONTEXT_LENGTH_EXCEEDED": codes.FailedPrecondition,
	"CREDENTIAL_ENDED":        codes.Unauthenticated,
	"DISK_FULL":               codes.Unavailable,
	"ERASING":                 codes.FailedPrecondition,
	"FACTS_FULL":              codes.ResourceExhausted,
	"HELD":                    codes.FailedPrecondition,
	"INDEX_INCOMPLETE":        codes.Unavailable,
	"INTERRUPTED":             codes.Aborted,
	"INVALID_REQUEST":         codes.InvalidArgument,
	"KEY_TAKEN":               codes.AlreadyExists,
	"KEY_UNAVAILABLE":         codes.FailedPrecondition,
	"LOG_DAMAGED":             codes.DataLoss,
	"MODE_CHANGED":            codes.FailedPrecondition,
	"MODE_FAILED":             codes.FailedPrecondition,
	"MODE_UNAVAILABLE":        codes.FailedPrecondition,
	"NOT_FOUND":               codes.NotFound,
	"NO_ANSWER":               codes.FailedPrecondition,
	"OUTPUT_MISMATCH":         codes.FailedPrecondition,
	"OUT_OF_RANGE":            codes.OutOfRange,
	"OVERLOADED":              codes.Unavailable,
	"PERMISSION_DENIED":       codes.PermissionDenied,
	"PLAN_MISSING":            codes.FailedPrecondition,
	"PRICE_UNKNOWN":           codes.FailedPrecondition,
	"PROVIDER_AUTHENTICATION": codes.FailedPrecondition,
	"PROVIDER_UNAVAILABLE":    codes.Unavailable,
	"QUEUE_FULL":              codes.ResourceExhausted,
	"QUOTA_EXCEEDED":          codes.ResourceExhausted,
	"RATE_LIMITED":            codes.ResourceExhausted,
	"REMOTE_AUTHENTICATION":   codes.FailedPrecondition,
	"REMOTE_BAD_ANSWER":       codes.FailedPrecondition,
	"REMOTE_FAILED":           codes.FailedPrecondition,
	"REMOTE_NOT_ALLOWED":      codes.FailedPrecondition,
	"REMOTE_OUTCOME_UNKNOWN":  codes.Aborted,
	"REMOTE_REJECTED":         codes.FailedPrecondition,
	"REMOTE_UNAVAILABLE":      codes.Unavailable,
	"SKILL_UNAVAILABLE":       codes.FailedPrecondition,
	"STALE_LEASE":             codes.Aborted,
	"STREAM_STALLED":          codes.DeadlineExceeded,
	"TOOL_REQUIRED":           codes.FailedPrecondition,
	"UNAUTHENTICATED":         codes.Unauthenticated,
	"UNKNOWN_PLACEHOLDER":     codes.InvalidArgument,
	"UNPAIRED_MESSAGES":       codes.InvalidArgument,
	"UNSUPPORTED":             codes.Unimplemented,
	"VERSION_CONFLICT":        codes.Aborted,
}
