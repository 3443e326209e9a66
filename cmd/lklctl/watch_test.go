// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"
)

// watched runs a verb with --watch until end has read the expected output.
func watched(t *testing.T, args []string, end func(r *bufio.Reader)) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	r, w := io.Pipe()
	var errs strings.Builder
	done := make(chan int, 1)
	go func() {
		done <- run(ctx, args, w, &errs).Status
		w.Close()
	}()
	end(bufio.NewReader(r))
	go io.Copy(io.Discard, r) //nolint:errcheck // until the writer is done
	cancel()
	return result{<-done, "", errs.String()}
}

func line(t *testing.T, r *bufio.Reader) string {
	t.Helper()
	text, err := r.ReadString('\n')
	if err != nil {
		t.Fatalf("reading: %v after %q", err, text)
	}
	return text
}

func TestWatch(t *testing.T) {
	instanceOf(t, "web")
	got := watched(t, []string{"netstat", "--watch=0.05", "-o", "json"}, func(r *bufio.Reader) {
		for range 3 {
			var all []any
			if text := line(t, r); json.Unmarshal([]byte(text), &all) != nil || len(all) != 0 {
				t.Errorf("not a document a line: %q", text)
			}
		}
	})
	if got.status != 0 || got.errors != "" {
		t.Errorf("stopped: %+v", got)
	}
	got = watched(t, []string{"mptcp", "--watch=50ms"}, func(r *bufio.Reader) {
		for range 2 {
			if text := line(t, r); text != "instance \"web\" has no MPTCP connection\n" {
				t.Errorf("%q", text)
			}
			if text := line(t, r); text != "\n" { // between two rounds
				t.Errorf("%q", text)
			}
		}
	})
	if got.status != 0 || got.errors != "" {
		t.Errorf("stopped: %+v", got)
	}
}
