// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

// TestUpToDate checks the same as `make generate && git diff --exit-code`, for
// this package.
func TestUpToDate(t *testing.T) {
	header, err := os.ReadFile("../../../../csrc/shared/ctl_proto.h")
	if err != nil {
		t.Fatal(err)
	}
	want, err := generate(bytes.NewReader(header))
	if err != nil {
		t.Fatal(err)
	}
	have, err := os.ReadFile("../proto_gen.go")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(want, have) {
		t.Error("internal/stack/ctlproto/proto_gen.go is older than csrc/shared/ctl_proto.h: run `go generate ./internal/stack/ctlproto`")
	}
}

func TestRefusals(t *testing.T) {
	for name, src := range map[string]string{
		"no integer": "#define CTL_A (1 << 2)\n",
		"nothing":    "#define OTHER 1\n",
	} {
		if _, err := generate(strings.NewReader(src)); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
