// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// This test generates the tables of docs/reference/configuration.md from the tables of
// this package.
func TestReferenceIsCurrent(t *testing.T) {
	const path = "../../docs/reference/configuration.md"
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	for name, table := range map[string]string{"settings": settingsTable(), "types": typesTable(), "keys": keysTable(), "profiles": profilesTable()} {
		between := regexp.MustCompile(`(?s)(<!-- ` + name + ` -->\n).*?(<!-- end -->)`)
		if !between.MatchString(text) {
			t.Errorf("%s has no place for the %s", path, name)
		}
		text = between.ReplaceAllStringFunc(text, func(m string) string {
			parts := between.FindStringSubmatch(m)
			return parts[1] + table + parts[2]
		})
	}
	golden(t, path, []byte(text))
}

// cell escapes vertical bars, which would end the cell of a table.
func cell(s string) string { return strings.ReplaceAll(s, "|", `\|`) }

func code(s string) string {
	if s == "" {
		return ""
	}
	return "`" + cell(s) + "`"
}

func settingsTable() string {
	kinds := map[Kind]string{
		Text: "string", Size: "string or bytes", Number: "number", Switch: "true or false", Texts: "array of strings",
		Numbers: "array of numbers", Interfaces: "array of [interfaces](#interfaces)", Sysctls: "object of names and values, or array of `NAME=VALUE`",
	}
	var b strings.Builder
	b.WriteString("| key | flag | variable | value | default | meaning |\n|---|---|---|---|---|---|\n")
	for n := range settings {
		s := &settings[n]
		flag := ""
		if s.Flag != "" {
			flag = "--" + s.Flag
		}
		value := kinds[s.Kind]
		if len(s.Choices) > 0 {
			value = code(strings.Join(s.Choices, "|"))
		} else if s.Kind == Number {
			value += fmt.Sprintf(", %d to %d", s.Least, s.Most)
		} else if s.Example != "" {
			value += ", such as " + code(s.Example)
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", code(s.Key), code(flag), code(s.Variable()), value, code(s.Default), cell(s.Help))
	}
	return b.String() + "\n`profiles` of a file is an object of [profiles](#profiles) by their names.\n"
}

func typesTable() string {
	var b strings.Builder
	b.WriteString("| type | what |\n|---|---|\n")
	for _, t := range interfaceTypes {
		fmt.Fprintf(&b, "| %s | %s |\n", code(t.spec()), cell(t.Help))
	}
	return b.String()
}

func keysTable() string {
	var b strings.Builder
	b.WriteString("| key | value | of | meaning |\n|---|---|---|---|\n")
	for _, k := range interfaceKeys() {
		form := code(k.form)
		if k.most > 0 {
			form += ", " + strconv.Itoa(k.least) + " to " + strconv.Itoa(k.most)
		}
		if k.list {
			form += ", any number"
		}
		of := "all"
		if k.why != "" {
			of = strings.ReplaceAll(typesWith(k.takenBy), " and ", ", ")
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", code(k.name), form, of, cell(k.help))
	}
	return b.String()
}

func profilesTable() string {
	var b strings.Builder
	all := BuiltinProfiles()
	b.WriteString("| profile | for | settings |\n|---|---|---|\n")
	for _, name := range all.Names() {
		var list []string
		for _, v := range all[name].Values() {
			list = append(list, code(strings.TrimPrefix(v.Setting, "sysctl ")+" "+v.Value))
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", name, cell(all[name].Summary), strings.Join(list, ", "))
	}
	return b.String() + "\nWhy each setting is there is said in [profiles.json](../../pkg/config/profiles.json).\n"
}
