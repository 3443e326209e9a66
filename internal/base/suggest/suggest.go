// SPDX-License-Identifier: Apache-2.0

// Package suggest finds the word that a user meant but mistyped.
package suggest

// Word returns the word of known that is most similar to typed. At most a third of the
// letters may differ. Word returns "" if no word is similar.
func Word(typed string, known []string) string {
	best, least := "", len(typed)/3+1
	for _, k := range known {
		switch d := distance(typed, k); {
		case d > 0 && d < least:
			best, least = k, d
		case d == least && best != "" && last(typed) == last(k) && last(typed) != last(best):
			best = k // users seldom mistype the end of a word
		}
	}
	return best
}

func last(s string) byte {
	if s == "" {
		return 0
	}
	return s[len(s)-1]
}

// Suggest returns "did you mean WORD?", or other if no word is similar.
func Suggest(typed string, known []string, other string) string {
	if w := Word(typed, known); w != "" {
		return "did you mean " + w + "?"
	}
	return other
}

// distance counts the edits that change a to b: insert, delete or replace a letter, or
// swap two neighbours (optimal string alignment).
func distance(a, b string) int {
	x, y := []rune(a), []rune(b)
	rows := make([][]int, len(x)+1)
	for i := range rows {
		rows[i] = make([]int, len(y)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(x); i++ {
		for j := 1; j <= len(y); j++ {
			cost := 1
			if x[i-1] == y[j-1] {
				cost = 0
			}
			d := min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+cost)
			if i > 1 && j > 1 && x[i-1] == y[j-2] && x[i-2] == y[j-1] {
				d = min(d, rows[i-2][j-2]+1)
			}
			rows[i][j] = d
		}
	}
	return rows[len(x)][len(y)]
}
