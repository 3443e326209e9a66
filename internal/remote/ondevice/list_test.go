// SPDX-License-Identifier: Apache-2.0

package ondevice

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"testing"
	"time"
)

// Follow sends heartbeats, and ends by itself when the desk is silent.
func TestFollow(t *testing.T) {
	in, desk := io.Pipe()
	list, out := io.Pipe()
	ended := make(chan error, 1)
	began := time.Now()
	go func() {
		err := Follow(in, out)
		out.Close()
		ended <- err
	}()
	lines := bufio.NewScanner(list)
	beats := 0
	for lines.Scan() {
		var f Followed
		if err := json.Unmarshal(lines.Bytes(), &f); err != nil || f.PID != os.Getpid() {
			t.Fatalf("%s: %v", lines.Text(), err)
		}
		if beats++; beats == 2 {
			if _, err := desk.Write([]byte("\n")); err != nil {
				t.Fatal(err)
			}
		}
	}
	took := time.Since(began)
	if err := <-ended; err != nil || beats < 4 || took < FollowSilence+FollowBeat/2 || took > FollowSilence+20*time.Second {
		t.Errorf("it ended after %v and %d lines: %v", took, beats, err)
	}
}
