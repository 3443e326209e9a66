// SPDX-License-Identifier: Apache-2.0

package runas

import (
	"slices"
	"strings"
	"testing"
)

// Debian's package base-passwd defines all these users.
func TestLookup(t *testing.T) {
	most := uint32(1<<32 - 2) // negative as a 32-bit int
	for word, want := range map[string]User{
		"nobody":       {Name: "nobody", UID: 65534, GID: 65534, Home: "/nonexistent"},
		"65534":        {Name: "nobody", UID: 65534, GID: 65534, Home: "/nonexistent"},
		"nobody:7":     {Name: "nobody", UID: 65534, GID: 7, Home: "/nonexistent"},
		"4321:1234":    {UID: 4321, GID: 1234, Home: "/"},
		"4294967294:0": {UID: int(most), Home: "/"},
	} {
		got, err := Lookup(word)
		if err != nil {
			t.Errorf("%s: %v", word, err)
			continue
		}
		if got.Name != want.Name || got.UID != want.UID || got.GID != want.GID || got.Home != want.Home {
			t.Errorf("%s: %+v, want %+v", word, got, want)
		}
		if given := strings.Contains(word, ":"); given != (len(got.Groups) == 0) {
			t.Errorf("%s: groups %v", word, got.Groups)
		}
	}
	for word, want := range map[string]string{
		"":             `"": the user name is empty`,
		":5":           `":5": the user name is empty`,
		"no-such-user": `"no-such-user": no such user; expected a NAME or UID`,
		"4321":         `"4321": no such user; expected UID:GID, because the group is unknown`,
		"4321:staff":   `the group "staff" is not a number`,
		"4321:":        `the group "" is not a number`,
		"4294967295:0": `no such user`,
		"-1:0":         `no such user`,
	} {
		if u, err := Lookup(word); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %+v, %v, want %s", word, u, err, want)
		}
	}
}

func TestSpec(t *testing.T) {
	for want, u := range map[string]User{
		"5:6":     {UID: 5, GID: 6},
		"5:6:7":   {UID: 5, GID: 6, Groups: []int{7}},
		"5:6:7,8": {UID: 5, GID: 6, Groups: []int{7, 8}},
	} {
		if got := u.Spec(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestEnviron(t *testing.T) {
	u := User{Name: "web", UID: 5, Home: "/srv/web"}
	got := u.Environ([]string{"A=1", "HOME=/root", "HOMER=x", "USER=root", "LOGNAME=root"})
	if want := []string{"A=1", "HOMER=x", "HOME=/srv/web", "USER=web", "LOGNAME=web"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
