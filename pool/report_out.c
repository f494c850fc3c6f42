/* SPDX-License-Identifier: Apache-2.0
 *
 * A buffer in front of a write function, and JSON: see report_out.h. No malloc, no stdio stream. No
 * locking, no driver.
 */
#include "report_out.h"

#include <stdio.h>
#include <string.h>

void zone_out_init(struct zone_out *out, zone_report_write_fn write, void *arg)
{
    out->write = write;
    out->arg = arg;
    out->rc = 0;
    out->used = 0;
    out->again = false;
}

static void flush(struct zone_out *out)
{
    if (out->rc == 0 && out->used > 0) {
        out->rc = out->write(out->arg, out->buffer, out->used);
    }
    out->used = 0;
}

static void put_char(struct zone_out *out, char c)
{
    if (out->used == sizeof(out->buffer)) {
        flush(out);
    }
    out->buffer[out->used++] = c;
}

void zone_out_put(struct zone_out *out, const char *text)
{
    for (; *text != '\0'; text++) {
        put_char(out, *text);
    }
}

int zone_out_end(struct zone_out *out)
{
    flush(out);
    return out->rc == 0 ? 0 : -1;
}

/* The length of the well-formed UTF-8 sequence at `text`, 0 if there is none. */
static size_t utf8_length(const unsigned char *text)
{
    unsigned char first = text[0];
    unsigned char low = 0x80;
    unsigned char high = 0xbf;
    size_t length;
    if (first < 0x80) {
        return 1;
    }
    if (first >= 0xc2 && first <= 0xdf) {
        length = 2;
    } else if (first >= 0xe0 && first <= 0xef) {
        length = 3;
        low = first == 0xe0 ? 0xa0 : 0x80;
        high = first == 0xed ? 0x9f : 0xbf; /* no surrogates */
    } else if (first >= 0xf0 && first <= 0xf4) {
        length = 4;
        low = first == 0xf0 ? 0x90 : 0x80;
        high = first == 0xf4 ? 0x8f : 0xbf;
    } else {
        return 0;
    }
    if (text[1] < low || text[1] > high) {
        return 0;
    }
    for (size_t i = 2; i < length; i++) {
        if ((text[i] & 0xc0) != 0x80) {
            return 0;
        }
    }
    return length;
}

static void put_quoted(struct zone_out *out, const char *text)
{
    put_char(out, '"');
    while (*text != '\0') {
        size_t length = utf8_length((const unsigned char *)text);
        unsigned char c = (unsigned char)*text;
        if (length == 0) {
            /* Program names are any bytes; JSON is Unicode. */
            zone_out_put(out, "\\ufffd");
            text++;
            continue;
        }
        if (c == '"' || c == '\\') {
            put_char(out, '\\');
            put_char(out, (char)c);
        } else if (c < 0x20) {
            char escape[8];
            snprintf(escape, sizeof(escape), "\\u%04x", c);
            zone_out_put(out, escape);
        } else {
            for (size_t i = 0; i < length; i++) {
                put_char(out, text[i]);
            }
        }
        text += length;
    }
    put_char(out, '"');
}

static void put_key(struct zone_out *out, const char *key)
{
    if (out->again) {
        put_char(out, ',');
    }
    if (key) {
        put_quoted(out, key);
        put_char(out, ':');
    }
    out->again = true;
}

void zone_json_open(struct zone_out *out, const char *key, char bracket)
{
    put_key(out, key);
    put_char(out, bracket);
    out->again = false;
}

void zone_json_close(struct zone_out *out, char bracket)
{
    put_char(out, bracket);
    out->again = true;
}

void zone_json_string(struct zone_out *out, const char *key, const char *value)
{
    put_key(out, key);
    put_quoted(out, value);
}

void zone_json_number(struct zone_out *out, const char *key, uint64_t value)
{
    char digits[24];
    snprintf(digits, sizeof(digits), "%llu", (unsigned long long)value);
    put_key(out, key);
    zone_out_put(out, digits);
}

void zone_json_bool(struct zone_out *out, const char *key, bool value)
{
    put_key(out, key);
    zone_out_put(out, value ? "true" : "false");
}
