// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"strings"
	"testing"
)

func TestParseCapture(t *testing.T) {
	for _, spec := range []string{"a.pcapng", "/tmp/a=b.pcapng", "a,snap=128", "ring", "ring,size=1M,snap=128,if=eth0", "./ring", "a,snap=60,if=eth0,if=lo,filter=tcp port 80 or (udp, if you like)"} {
		c, err := ParseCapture(spec)
		if err != nil || c.String() != spec {
			t.Errorf("%s: %+v, %v", spec, c, err)
		}
	}
	for spec, want := range map[string]string{
		"":                     `"": no file; expected FILE`,
		"-":                    `"-": standard output belongs to the command`,
		"snap=128":             `"snap=128": the file name must come first`,
		"a,snap=":              `"a,snap=": snap: no value`,
		"a,snap=59":            `"a,snap=59": snap: "59"; expected bytes, from 60 to 262144`,
		"a,snap=99,snap=":      `"a,snap=99,snap=": snap: no value`,
		"a,snap=99,snap=9999":  `"a,snap=99,snap=9999": snap: given twice`,
		"a,if=":                `"a,if=": if: no value`,
		"a,if=eth0,if=eth0":    `"a,if=eth0,if=eth0": if: eth0: given twice`,
		"a,if=a/b":             `"a,if=a/b": if: `,
		"a,filter=":            `"a,filter=": filter: no value`,
		"a,age=3":              `"a,age=3": "age": unknown key; expected snap, if, size (ring only), or filter as the last key`,
		"a,size=1M":            `"a,size=1M": size: only for a ring`,
		"ring,size=1":          `"ring,size=1": size: "1"; expected a size from 64K to 64M`,
		"ring,size=":           `"ring,size=": size: no value`,
		"ring,size=1M,size=1M": `"ring,size=1M,size=1M": size: given twice`,
	} {
		if c, err := ParseCapture(spec); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v, %v\nwant %s...", spec, c, err, want)
		}
	}
	var r Run
	if err := errors.Join(addCapture(&r, "ring"), addCapture(&r, "./ring")); err != nil {
		t.Fatal(err)
	}
	if err := addCapture(&r, "ring,size=1M"); err == nil || err.Error() != "ring: given twice; a file of that name is ./ring" {
		t.Error(err)
	}
	if err := addCapture(&r, "a"); err != nil {
		t.Fatal(err)
	}
	if err := addCapture(&r, "a,snap=128"); err == nil || err.Error() != `"a": the same file is given twice` {
		t.Error(err)
	}
}
