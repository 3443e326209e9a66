// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestParsePod(t *testing.T) {
	for text, want := range map[string]*Pod{
		"shop/web-7d9":            {Namespace: "shop", Name: "web-7d9"},
		"shop/web.a/9f0c-12":      {Namespace: "shop", Name: "web.a", UID: "9f0c-12"},
		"kube-system/etcd-node_1": {Namespace: "kube-system", Name: "etcd-node_1"},
		"shop":                    nil, "shop/": nil, "/web": nil, "a//b": nil, "a/b/c/d": nil, "a/..": nil, "a/b c": nil, "a/b\"": nil, "a/-b": nil,
		"a/b\n": nil, "a/" + strings.Repeat("b", maxPodWord+1): nil,
	} {
		got, err := ParsePod(text)
		if (err == nil) != (want != nil) || !cmp.Equal(got, want) {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	for text, ok := range map[string]bool{"web": true, "shop/web": true, "shop/web/uid": false, "a b": false, "": false} {
		if err := CheckSelector(text); (err == nil) != ok {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// A pod selects its instance: of several, the running one that started last.
func TestOpenPod(t *testing.T) {
	root := t.TempDir()
	began := time.Now()
	add := func(name, pod string, age time.Duration) *Dir {
		d, err := create(root, name)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(d.Release)
		s := State{Name: name, Started: began.Add(-age), Output: d.File(OutputFile)}
		if pod != "" {
			if s.Pod, err = ParsePod(pod); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(d.WriteState(&s), os.WriteFile(s.Output, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		return d
	}
	place := Place{Root: root}
	add("shop", "", 0)
	if _, err := place.Open("shop/web"); !errors.Is(err, ErrNone) || err.Error() != "pod shop/web has no running stack (looked in "+root+"), and neither has any other pod" {
		t.Errorf("no pod: %v", err)
	}
	add("old", "shop/web", time.Hour)
	newer := add("new", "shop/web", time.Minute)
	add("other", "web/shop", time.Second)
	gone := add("gone", "shop/web", 0)
	gone.Release() // the leftover of a killed run
	for name, want := range map[string]string{"shop/web": "new", "old": "old", "web/shop": "other", "shop": "shop"} {
		if info, err := place.Open(name); err != nil || info.Name != want {
			t.Errorf("%s: %+v, %v", name, info, err)
		}
	}
	if _, err := place.Open("shop/we"); !errors.Is(err, ErrNone) || !strings.Contains(err.Error(), "pods with a stack: shop/web, web/shop") {
		t.Errorf("another pod: %v", err)
	}
	// The record of an ended run keeps the pod.
	status := 0
	if err := newer.Keep(newer.State(), End{Time: began, Status: &status}); err != nil {
		t.Fatal(err)
	}
	if r, err := place.OpenEnded("shop/web"); err != nil || r == nil || r.Dir != filepath.Join(root, endedDir, "new") {
		t.Errorf("the record: %+v, %v", r, err)
	}
}
