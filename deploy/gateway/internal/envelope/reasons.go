package envelope

// StatusOfReason gives the HTTP status of a reason of headrace/errors.py; 500 for one that is not known.
func StatusOfReason(reason string) int {
	if code, ok := reasons[reason]; ok {
		return Status[code]
	}
	return 500
}
