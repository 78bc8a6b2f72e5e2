package jsonform

// findClosest returns the one of names that is most similar to word, or nothing: with the measure and threshold of
// Python's difflib.get_close_matches, so that both facades give the same hint.
func findClosest(word string, names []string) string {
	const likeEnough = 0.6
	best, bestRatio := "", likeEnough
	for _, name := range names {
		a, b := []rune(name), []rune(word)
		ratio := 2 * float64(countMatching(a, b)) / float64(len(a)+len(b))
		if ratio > bestRatio || ratio == bestRatio && name > best {
			best, bestRatio = name, ratio
		}
	}
	return best
}

// countMatching counts the letters in common: those of the longest common substring, and of the parts left and right of
// it.
func countMatching(a, b []rune) int {
	start, other, length := findLongest(a, b)
	if length == 0 {
		return 0
	}
	return length + countMatching(a[:start], b[:other]) + countMatching(a[start+length:], b[other+length:])
}

// findLongest finds the longest common substring: the first in a, and in b, of several.
func findLongest(a, b []rune) (start, other, length int) {
	ending := make([]int, len(b)+1) // length of the common substring that ends at a[i] and b[j-1]
	for i := range a {
		previous := 0
		for j := range b {
			here := 0
			if a[i] == b[j] {
				here = previous + 1
			}
			previous, ending[j+1] = ending[j+1], here
			if here > length {
				start, other, length = i-here+1, j-here+1, here
			}
		}
	}
	return start, other, length
}
