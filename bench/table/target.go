// SPDX-License-Identifier: Apache-2.0

package table

import "fmt"

// A Target is a lower or upper limit for a figure.
type Target struct {
	Criterion string // number of the requirement
	What      string
	Unit      string
	Of        Key
	Base      Key     // zero: the figure is Of; otherwise it is Of divided by Base
	Diff      bool    // the figure is Of minus Base
	AtLeast   float64 // either AtLeast or AtMost is set; 0: unused
	AtMost    float64
}

// Results of a target.
const (
	Met      = "met"
	Missed   = "missed"
	Unknown  = "not measured"
	tolerant = 1e-9 // two floats with a smaller difference count as equal
)

// Bound formats the limit, such as "≥ 2.00 × host".
func (t Target) Bound() string {
	word, limit := "≥", t.AtLeast
	if t.AtMost != 0 {
		word, limit = "≤", t.AtMost
	}
	if t.Base.Variant == "" {
		return fmt.Sprintf("%s %s %s", word, Number(limit), t.Unit)
	}
	base := t.Base.Variant
	if t.Base.Row() != t.Of.Row() && t.Base.Variant == t.Of.Variant {
		base = "its " + t.Base.Params.String()
	}
	if t.Diff {
		return fmt.Sprintf("%s %s %s over %s", word, Number(limit), t.Unit, base)
	}
	return fmt.Sprintf("%s %.2f × %s", word, limit, base)
}

// Judge computes a target's figure and whether it meets the target.
func (s *Set) Judge(t Target) (figure float64, verdict string) {
	ok := false
	switch {
	case t.Base.Variant == "":
		figure, ok = s.Median(t.Of, t.Unit)
	case t.Diff:
		a, has := s.Median(t.Of, t.Unit)
		b, other := s.Median(t.Base, t.Unit)
		figure, ok = a-b, has && other
	default:
		figure, ok = s.over(t.Of, t.Base, t.Unit)
	}
	switch {
	case !ok:
		return 0, Unknown
	case t.AtMost != 0 && figure > t.AtMost+tolerant, t.AtMost == 0 && figure < t.AtLeast-tolerant:
		return figure, Missed
	}
	return figure, Met
}

// Number formats a value with about three significant digits.
func Number(v float64) string {
	a := v
	if a < 0 {
		a = -a
	}
	switch {
	case a >= 100:
		return fmt.Sprintf("%.0f", v)
	case a >= 10:
		return fmt.Sprintf("%.1f", v)
	case a >= 0.1 || a == 0:
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.3g", v)
}
