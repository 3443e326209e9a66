// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"errors"
	"strings"
	"testing"
)

// Only contexts of Android's policy count, and only its user IDs of apps.
func TestProcess(t *testing.T) {
	for text, want := range map[string]string{
		"u:r:untrusted_app:s0:c133,c256\x00": "u:r:untrusted_app:s0:c133,c256", "u:r:shell:s0\n": "u:r:shell:s0",
		"unconfined\n": "", "unconfined_u:unconfined_r:unconfined_t:s0": "", "": "",
	} {
		if got := androidContext(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	const context = "u:r:untrusted_app:s0"
	for p, want := range map[Process]string{
		{UID: 10123, Context: context, Filtered: true}: "an Android app, uid 10123, SELinux context u:r:untrusted_app:s0, under a seccomp filter",
		{UID: 1010123, Context: context}:               "an Android app, uid 1010123",
		{UID: 2000, Context: "u:r:shell:s0"}:           "uid 2000, SELinux context u:r:shell:s0",
		{UID: 10123, Filtered: true}:                   "uid 10123, under a seccomp filter",
	} {
		if got := p.String(); !strings.HasPrefix(got, want) || !p.Restricted() || p.App() != strings.HasPrefix(want, "an Android app") {
			t.Errorf("%+v: %q", p, got)
		}
	}
	if (Process{UID: 10123}).Restricted() {
		t.Error("an ordinary user is restricted")
	}
}

// Preload requires a network namespace or a seccomp filter.
func TestConfinement(t *testing.T) {
	no, none := errors.New("no"), errors.New("none")
	if lacks, err := confinement(nil, no); len(lacks) != 0 || err != nil {
		t.Errorf("with a namespace: %v, %v", lacks, err)
	}
	if lacks, err := confinement(no, nil); len(lacks) != 1 || err != nil {
		t.Errorf("with a filter: %v, %v", lacks, err)
	}
	if _, err := confinement(no, none); !errors.Is(err, no) || !errors.Is(err, none) || strings.Contains(err.Error(), "\n") {
		t.Errorf("with neither: %v", err)
	}
}
