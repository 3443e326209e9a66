// SPDX-License-Identifier: Apache-2.0

package verbtest

import (
	"flag"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Update is the flag -update.
var Update = flag.Bool("update", false, "update the golden files")

// Golden compares text with a file in testdata.
func Golden(t *testing.T, name, text string) {
	t.Helper()
	path := "testdata/" + name
	if *Update {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), text); diff != "" {
		t.Errorf("%s (-golden +now):\n%s", name, diff)
	}
}
