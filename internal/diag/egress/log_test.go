// SPDX-License-Identifier: Apache-2.0

package egress

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"os"
	"testing"
)

// TestLogNeverWaits checks that a log whose reader does not read stops nobody, and that it
// says how many decisions are missing.
func TestLogNeverWaits(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	l := NewLog(w, func(err error) { t.Error(err) })
	const all = 3*logQueue + 1<<16 // more than the queue and the pipe can hold
	for range all {
		l.Add(Decision{Protocol: "tcp", Address: "192.0.2.1", Port: 80, Verdict: "allowed"})
	}
	go l.Close()
	var seen, missing int64
	for s := bufio.NewScanner(r); s.Scan(); {
		var line struct {
			Verdict string
			Lost    int64
		}
		if err := json.Unmarshal(s.Bytes(), &line); err != nil {
			t.Fatalf("%s: %v", s.Text(), err)
		}
		if missing += line.Lost; line.Verdict != "" {
			seen++
		}
	}
	if seen+missing != all || missing == 0 {
		t.Errorf("%d decisions in the log and %d missing, of %d", seen, missing, all)
	}
	l.Add(Decision{}) // after the end
}

type full struct{ io.Writer }

func (full) Write([]byte) (int, error) { return 0, errors.New("no space") }
func (full) Close() error              { return nil }

// TestLogFails checks that a failure is reported once.
func TestLogFails(t *testing.T) {
	reports := 0
	l := NewLog(full{}, func(error) { reports++ })
	for range 3 {
		l.Add(Decision{})
	}
	l.Close()
	if reports != 1 {
		t.Errorf("%d reports", reports)
	}
}
