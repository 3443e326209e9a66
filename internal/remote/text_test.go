// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"io"
	"strings"
	"testing"
)

// A device with endless output does not fill the memory, regardless of how the
// output is copied.
func TestHead(t *testing.T) {
	h := Head{Most: 10}
	for range 2 {
		if n, err := io.Copy(&h, strings.NewReader("12345")); n != 5 || err != nil || h.More() {
			t.Fatalf("%d, %v, %v", n, err, h.More())
		}
	}
	if n, err := io.Copy(&h, strings.NewReader(strings.Repeat("x", 1<<20))); n != 1<<20 || err != nil || !h.More() || h.String() != "1234512345" {
		t.Errorf("%d, %v, %v, %q", n, err, h.More(), h.String())
	}
}
