// SPDX-License-Identifier: Apache-2.0

// Package runas finds the user that a command should run as, and sets the environment as
// su(1) does.
package runas

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
)

// User is the user that a command runs as.
type User struct {
	Name   string `json:"name,omitempty"`   // user name; empty: none
	UID    int    `json:"uid"`              // user ID
	GID    int    `json:"gid"`              // group ID
	Groups []int  `json:"groups,omitempty"` // supplementary group IDs
	Home   string `json:"home,omitempty"`   // home directory
}

// maxID is the highest user or group ID. The next number means "unchanged".
const maxID = 1<<32 - 2

// Lookup finds a user by name, UID or UID:GID in /etc/passwd and /etc/group. With
// UID:GID, the GID becomes the only group, and the user need not be in /etc/passwd.
func Lookup(word string) (*User, error) {
	id, group, given := strings.Cut(word, ":")
	entry, err := entryOf(id)
	u := &User{Home: "/"}
	if entry != nil {
		u.Name, u.Home = entry.Username, entry.HomeDir
		id = entry.Uid
	}
	var bad error
	if u.UID, bad = number(id); bad != nil {
		return nil, fmt.Errorf("%q: %w; expected a NAME or UID from /etc/passwd, or UID:GID", word, err)
	}
	switch {
	case given:
		if u.GID, bad = number(group); bad != nil {
			return nil, fmt.Errorf("%q: the group %q is not a number; expected a NAME or UID from /etc/passwd, or UID:GID", word, group)
		}
		return u, nil
	case entry == nil:
		return nil, fmt.Errorf("%q: %w; expected UID:GID, because the group is unknown", word, err)
	}
	if u.GID, err = number(entry.Gid); err != nil {
		return nil, fmt.Errorf("%q: /etc/passwd: the group %q is not a number", word, entry.Gid)
	}
	ids, err := entry.GroupIds()
	if err != nil {
		return nil, fmt.Errorf("%q: %w", word, err)
	}
	for _, id := range ids {
		n, err := number(id)
		if err != nil {
			return nil, fmt.Errorf("%q: /etc/group: the group %q is not a number", word, id)
		}
		u.Groups = append(u.Groups, n)
	}
	return u, nil
}

// errUnknown means that /etc/passwd does not contain the user.
var errUnknown = errors.New("no such user")

func entryOf(id string) (*user.User, error) {
	if id == "" {
		return nil, errors.New("the user name is empty")
	}
	if e, err := user.Lookup(id); err == nil {
		return e, nil
	}
	if e, err := user.LookupId(id); err == nil {
		return e, nil
	}
	return nil, errUnknown
}

func number(s string) (int, error) {
	n, err := strconv.ParseUint(s, 10, 32)
	if err == nil && n > maxID {
		err = strconv.ErrRange
	}
	return int(n), err
}

// Self reports whether u is the user of this process.
func (u *User) Self() bool {
	return u.UID == os.Geteuid() && u.GID == os.Getegid()
}

// Spec formats u for lklhost's command line: UID:GID[:GROUP,GROUP...].
func (u *User) Spec() string {
	spec := fmt.Sprintf("%d:%d", u.UID, u.GID)
	for n, g := range u.Groups {
		if n == 0 {
			spec += ":"
		} else {
			spec += ","
		}
		spec += strconv.Itoa(g)
	}
	return spec
}

// String formats u for output to the user.
func (u *User) String() string {
	if u.Name != "" {
		return fmt.Sprintf("%s (%d:%d)", u.Name, u.UID, u.GID)
	}
	return fmt.Sprintf("%d:%d", u.UID, u.GID)
}

// Environ returns env as changed by su(1) without a login: it sets HOME, USER and LOGNAME
// to those of u and keeps the rest.
func (u *User) Environ(env []string) []string {
	own := []string{"HOME=" + u.Home}
	name := u.Name
	if name == "" {
		name = strconv.Itoa(u.UID)
	}
	own = append(own, "USER="+name, "LOGNAME="+name)
	rest := slices.DeleteFunc(slices.Clone(env), func(s string) bool {
		return strings.HasPrefix(s, "HOME=") || strings.HasPrefix(s, "USER=") || strings.HasPrefix(s, "LOGNAME=")
	})
	return append(rest, own...)
}
