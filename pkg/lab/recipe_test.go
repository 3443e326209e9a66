// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/lklrun/lklrun/pkg/lab"
)

// TestRecipe is the example of docs/how-to/testing.md: a download over a path that
// loses packets.
func TestRecipe(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	folder, data := t.TempDir(), bytes.Repeat([]byte("All these bytes arrive.\n"), 40_000)
	if err := os.WriteFile(filepath.Join(folder, "data"), data, 0o644); err != nil {
		t.Fatal(err)
	}

	l, err := lab.Up(ctx, lab.Shape{
		Wire:   lab.Wire{Delay: "10ms", Rate: "50mbit", Loss: "2%", Seed: 7},
		Server: lab.Command{"python3", "-m", "http.server", "--directory", folder, "80"},
	}.Topology(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Down(context.Background()); err != nil {
			t.Error(err)
		}
	})

	out, err := l.Command(ctx, "client", "curl", "-sSf", "http://server/data").Output()
	if err != nil {
		t.Fatalf("curl: %v\n%s", err, l.Log("server"))
	}
	if !bytes.Equal(out, data) {
		t.Errorf("%d bytes arrived, expected the %d bytes of the file", len(out), len(data))
	}
	counters, err := l.Counters(ctx, "server")
	if err != nil {
		t.Fatal(err)
	}
	if counters["TcpRetransSegs"] == 0 {
		t.Error("the server retransmitted nothing, so the wire lost nothing")
	}
}
