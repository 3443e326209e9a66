// SPDX-License-Identifier: Apache-2.0

package drill

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/lklrun/lklrun/internal/stack/stacknet"
)

// Script is a list of timed steps.
type Script struct {
	Steps []TimedStep
	End   time.Duration // from the start
}

// TimedStep is a step of a script.
type TimedStep struct {
	At time.Duration // from the start
	Step
}

// Limits of a script.
const (
	mostScript = 24 * time.Hour
	mostSteps  = 1000
	afterLast  = 5 * time.Second // how long a script without an end continues
)

// ParseScript parses lines of TIME IF STEP...: TIME counts from the start or, with a plus
// sign, from the previous step. "TIME end" sets the end, # begins a comment. An error
// names the line.
func ParseScript(r io.Reader, ways []stacknet.Way) (*Script, error) {
	s := &Script{}
	last, ended := time.Duration(0), false
	in := bufio.NewScanner(r)
	for n := 1; in.Scan(); n++ {
		text, _, _ := strings.Cut(in.Text(), "#")
		f := strings.Fields(text)
		if len(f) == 0 {
			continue
		}
		at, err := stepTime(f[0], last)
		switch {
		case err != nil:
		case ended:
			err = fmt.Errorf("stands behind the end: move it before that line")
		case len(f) == 2 && f[1] == "end":
			s.End, ended = at, true
		case len(f) < 3:
			err = fmt.Errorf("%q: expected TIME IF STEP..., as in 5s eth1 down", strings.TrimSpace(text))
		case len(s.Steps) == mostSteps:
			err = fmt.Errorf("more than %d steps", mostSteps)
		default:
			var step Step
			if step, err = ParseStep(f[1], ways, f[2:]); err == nil {
				s.Steps = append(s.Steps, TimedStep{at, step})
			}
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		last = at
	}
	if err := in.Err(); err != nil {
		return nil, err
	}
	if len(s.Steps) == 0 {
		return nil, fmt.Errorf("no step in it: expected lines of TIME IF STEP..., as in 5s eth1 down")
	}
	if !ended {
		s.End = last + afterLast
	}
	return s, nil
}

// stepTime parses the time of a line.
func stepTime(word string, last time.Duration) (time.Duration, error) {
	text, relative := strings.CutPrefix(word, "+")
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("time %q: expected one such as 5s, or +2.5s after the step before", word)
	}
	if relative {
		d += last
	}
	if d < last {
		return 0, fmt.Errorf("time %q: is before that of the step before, %v: put the lines in order", word, last)
	}
	if d > mostScript {
		return 0, fmt.Errorf("time %q: a script lasts %v at most", word, mostScript)
	}
	return d, nil
}

// Check finds steps of a script that are impossible, without changing anything. It starts
// from the present state of the interfaces, and returns that of the interfaces concerned.
func (p *Paths) Check(steps ...Step) ([]Path, error) {
	all, err := p.List()
	if err != nil {
		return nil, err
	}
	now := map[string]State{}
	var touched []Path
	for _, s := range steps {
		q, err := find(all, s.Iface)
		if err != nil {
			return nil, err
		}
		have, known := now[s.Iface]
		if !known {
			have = q.State
			touched = append(touched, q)
		}
		if now[s.Iface], err = s.from(have); err != nil {
			return nil, err
		}
	}
	return touched, nil
}
