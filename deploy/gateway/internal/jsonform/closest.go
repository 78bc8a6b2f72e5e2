package jsonform

// closest gives the one of `names` that is most like `word`, or nothing when none is like it: the measure and the
// threshold of Python's difflib.get_close_matches, so that both facades give the same hint.
func closest(word string, names []string) string {
	const likeEnough = 0.6
	best, bestRatio := "", likeEnough
	for _, name := range names {
		a, b := []rune(name), []rune(word)
		ratio := 2 * float64(matching(a, b)) / float64(len(a)+len(b))
		if ratio > bestRatio || ratio == bestRatio && name > best {
			best, bestRatio = name, ratio
		}
	}
	return best
}

// matching counts the letters in common: those of the longest common stretch, and of what lies left and right of it.
func matching(a, b []rune) int {
	start, other, length := longest(a, b)
	if length == 0 {
		return 0
	}
	return length + matching(a[:start], b[:other]) + matching(a[start+length:], b[other+length:])
}

// longest finds the longest stretch that `a` and `b` share: the first in `a`, and in `b`, of several.
func longest(a, b []rune) (start, other, length int) {
	ending := make([]int, len(b)+1) // of the stretch that ends at a[i] and b[j-1]
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
