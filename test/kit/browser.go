// SPDX-License-Identifier: Apache-2.0

package kit

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// browserLimit bounds a whole browser script; each of its waits takes up to 30 s.
const browserLimit = 4 * time.Minute

// Browse runs a script for node, which drives a browser in the namespace. The script
// requests actions, which do carries out: a request is one line on its standard output,
// and the answer is the line "done" on its standard input.
func Browse(t *testing.T, in *Netns, do func(what string), script string, args ...string) {
	t.Helper()
	modules := filepath.Join(Root(), "build", "web", "node_modules")
	Need(t, "node", "/usr/bin/chromium")
	if _, err := os.Stat(modules); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("make browser: %v", err)
		}
		t.Skipf("make browser: %v", err)
	}
	cmd := in.Command(append([]string{"node", script}, args...)...)
	cmd.Env = append(os.Environ(), "NODE_PATH="+modules+":"+filepath.Join(Root(), "test", "kit", "testdata"), "TMPDIR="+Dir(t), "HOME="+Dir(t))
	answers, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	node := Start(t, cmd)
	for answered := 0; ; answered++ {
		asked := func() []string {
			out, _ := node.Output()
			return strings.Split(out, "\n")[answered:]
		}
		if !Within(browserLimit, func() bool { return len(asked()) > 1 || !node.Running() }) || len(asked()) == 1 {
			break
		}
		do(asked()[0])
		if _, err := fmt.Fprintln(answers, "done"); err != nil {
			break // it has ended, and reports why
		}
	}
	r := node.Wait(Limit)
	t.Logf("%s", r.Stderr)
	if r.Status != 0 {
		t.Fatalf("%s: %v", filepath.Base(script), r)
	}
}
