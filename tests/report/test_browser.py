"""The page in a real browser: nothing is asked for, every control works, by hand, by key, on paper and on a phone."""

import csv
import json
import math
from dataclasses import replace

import pytest
from report.cases import Page

from creditscope.records import HeaderRow
from creditscope.report import write_report

pytestmark = pytest.mark.browser
HOSTILE = "<script>document.title='owned'</script>\"'</style>&amp;漢字\u202e" + "n" * 300
PHONE = {"width": 390, "height": 844}


def series(tab, plot):
    return int(tab.locator(f"#{plot}").get_attribute("data-series"))


def first(tab, plot):
    """The values of the first line that is drawn."""
    return json.loads(tab.locator(f"#{plot}").get_attribute("data-first"))


def overflow(tab):
    return tab.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")


def ink(tab, plot):
    """How many pixels of a plot's canvas are painted, and their mean brightness."""
    return tab.evaluate(
        """id => {
          const canvas = document.querySelector('#' + id + ' canvas');
          const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
          let painted = 0, bright = 0;
          for (let i = 0; i < pixels.length; i += 4) {
            if (pixels[i + 3] > 200) { painted++; bright += pixels[i] + pixels[i + 1] + pixels[i + 2]; }
          }
          return [painted, bright / painted / 3];
        }""",
        plot,
    )


def test_every_plot_is_drawn(visit, html, page):
    tab = visit(html)
    for plot in page.data["plots"]:
        assert series(tab, plot["id"]) > 0
        assert ink(tab, plot["id"])[0] > 1000


def test_the_policy_refuses_what_is_not_ours(visit, html):
    """The proof that the policy is in force: a script put into the page does not run."""
    tab = visit(html)
    done = tab.evaluate(
        """() => new Promise(resolve => {
          document.addEventListener('securitypolicyviolation', event => resolve(event.effectiveDirective));
          const node = document.createElement('script');
          node.textContent = 'window.owned = 1';
          document.body.append(node);
          setTimeout(() => resolve('nothing refused'), 2000);
        })"""
    )
    assert done.startswith("script-src")
    assert tab.evaluate("window.owned") is None
    assert len(visit.errors) == 1
    visit.errors.clear()


def test_a_seed_that_is_switched_off_leaves(visit, html):
    tab = visit(html)
    before = series(tab, "plot-scale")
    tab.click("#choose summary")
    tab.locator("#choose [data-key='seed:123']").uncheck()
    assert series(tab, "plot-scale") == before * 2 // 3
    tab.locator("#choose [data-key='seed:123']").check()
    assert series(tab, "plot-scale") == before


def test_a_method_that_is_switched_off_leaves_every_plot(visit, html, page):
    tab = visit(html)
    tab.click("#choose summary")
    index = next(i for i, cell in enumerate(page.data["cells"]) if cell["label"] == "dfa-rms")
    before = {plot: series(tab, plot) for plot in ("plot-scale", "plot-direction", "plot-gamma")}
    tab.locator(f"#choose [data-key='cell:{index}']").uncheck()
    assert {plot: series(tab, plot) for plot in before} == {plot: n - 3 for plot, n in before.items()}
    for box in tab.locator("#choose fieldset:first-of-type input").all():
        box.uncheck()
    assert "Nothing chosen" in tab.locator("#plot-scale").inner_text()


def test_the_mean_over_seeds(visit, html, page):
    tab = visit(html)
    tab.click("#choose summary")
    tab.locator("#choose [data-key='mean']").check()
    assert series(tab, "plot-stream") == 2
    runs = [run for run in page.data["runs"] if run["log"].startswith("bp-s")]
    wanted = [sum(values) / 3 for values in zip(*(run["values"]["hidden"][-1] for run in runs), strict=True)]
    assert first(tab, "plot-stream") == pytest.approx(wanted)


def test_the_axis_switches_between_log_and_linear(visit, html):
    tab = visit(html)
    plot = tab.locator("#plot-scale")
    assert plot.get_attribute("data-log") == "true"
    drawn = ink(tab, "plot-scale")
    tab.locator("#plot-scale-bar [data-key=log]").uncheck()
    assert plot.get_attribute("data-log") == "false"
    assert ink(tab, "plot-scale") != drawn


def test_log_epochs_leave_out_epoch_0(visit, html):
    tab = visit(html)
    values = first(tab, "plot-scale")
    tab.locator("#plot-scale-bar [data-key=logx]").check()
    assert first(tab, "plot-scale") == values[1:]


def test_degrees_are_the_angles_of_the_cosines(visit, html):
    tab = visit(html)
    tab.click("#choose summary")
    tab.locator("#choose [data-key='cell:0']").uncheck()
    cosines = first(tab, "plot-direction")
    tab.locator("#plot-direction-bar [data-key=degrees]").check()
    assert first(tab, "plot-direction") == pytest.approx([math.degrees(math.acos(value)) for value in cosines])


def test_layers_and_epochs(visit, html, page):
    tab = visit(html)
    tab.select_option("#plot-direction-bar [data-key=view]", "epochs")
    assert series(tab, "plot-direction") == 6
    tab.locator("#plot-direction-bar [data-key='layer:0']").check()
    assert series(tab, "plot-direction") == 12
    tab.select_option("#plot-direction-bar [data-key=view]", "layers")
    tab.select_option("#plot-direction-bar [data-key=quantity]", "rho")
    run = next(run for run in page.data["runs"] if run["log"].startswith("bp-s42"))
    assert first(tab, "plot-direction") == [layer[-1] for layer in run["values"]["rho"]]


def test_the_epoch_slider(visit, html, page):
    tab = visit(html)
    slider = tab.locator("#plot-reference-bar [data-key=epoch]")
    slider.focus()
    tab.keyboard.press("Home")
    assert slider.get_attribute("aria-valuetext") == "epoch 0"
    run = next(run for run in page.data["runs"] if run["log"].startswith("bp-s42"))
    assert first(tab, "plot-reference") == [layer[0] for layer in run["values"]["gain"]]


def test_the_null_band_can_be_hidden(visit, html):
    tab = visit(html)
    drawn = ink(tab, "plot-direction")
    tab.locator("#plot-direction-bar [data-key=band]").uncheck()
    assert ink(tab, "plot-direction") != drawn


def test_hover_shows_values(visit, html, page):
    tab = visit(html)
    over = tab.locator("#plot-accuracy .u-over")
    over.scroll_into_view_if_needed()
    box = over.bounding_box()
    tab.mouse.move(box["x"] + box["width"] - 2, box["y"] + box["height"] / 2)
    tip = tab.locator("#plot-accuracy .tip")
    tip.wait_for(state="visible")
    last = next(run for run in page.data["runs"] if run["log"].startswith("bp-s42"))["values"]["accuracy"][0][-1]
    assert "epoch 5" in tip.inner_text()
    assert str(last) in tip.inner_text()


def test_a_plot_is_read_by_key(visit, html):
    tab = visit(html)
    plot, said = tab.locator("#plot-accuracy"), tab.locator("#plot-accuracy-said")
    plot.focus()
    tab.keyboard.press("ArrowRight")
    assert said.inner_text().startswith("epoch 0: bp 0.1 (seed 42)")
    tab.keyboard.press("End")
    assert said.inner_text().startswith("epoch 5: bp 0.61")
    assert said.get_attribute("aria-live") == "polite"


def test_every_control_is_reached_by_tab(visit, html):
    tab = visit(html)
    wanted = tab.evaluate(
        "document.querySelectorAll('.bar input, .bar select, .plot, #theme, summary, .matrix a').length"
    )
    reached = set()
    for _ in range(600):
        tab.keyboard.press("Tab")
        key = tab.evaluate(
            """() => { const node = document.activeElement;
              if (node === document.body) return 'end';
              if (!node.matches('.bar input, .bar select, .plot, #theme, summary, .matrix a')) return null;
              return [...document.querySelectorAll('*')].indexOf(node); }"""
        )
        if key == "end":
            break
        if key is not None:
            reached.add(key)
    assert len(reached) == wanted


def test_every_control_has_a_name(visit, html):
    tab = visit(html)
    tab.click("#choose summary")
    nameless = tab.evaluate(
        """[...document.querySelectorAll('input, select, button, .plot, .scroll')].filter(node =>
          !(node.getAttribute('aria-label') || (node.closest('label') || node).textContent || '').trim()).length"""
    )
    assert nameless == 0


def test_a_hostile_name_stays_text(visit, logs, tmp_path):
    spec = logs[0].spec.model_copy(update={"rule": HOSTILE, "origin": "import"})
    hostile = replace(logs[0], name=f"{HOSTILE}.jsonl", header=HeaderRow(spec=spec))
    out = write_report([hostile, *logs[1:]], tmp_path / "report.html")
    tab = visit(out, viewport=PHONE)
    assert "owned" not in tab.title()
    assert tab.evaluate("document.scripts.length") == 2
    assert "<script>document.title='owned'</script>" in tab.locator("#verdict").inner_text()
    assert overflow(tab) == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_and_dark(visit, html, scheme):
    tab = visit(html, color_scheme=scheme)
    paper = tab.evaluate("getComputedStyle(document.body).backgroundColor")
    shade = sum(int(part) for part in paper[4:-1].split(",")) / 3
    assert (shade < 60) if scheme == "dark" else (shade > 200)
    painted = ink(tab, "plot-gamma")[1]
    tab.click("#theme")
    tab.click("#theme")
    assert tab.evaluate("document.documentElement.dataset.theme") == "dark"
    assert (ink(tab, "plot-gamma")[1] == painted) == (scheme == "dark")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_its_ground(visit, html, scheme):
    """WCAG AA: 4.5 to 1 for the text colours on paper and on cards."""
    tab = visit(html, color_scheme=scheme)
    names = ("--ink", "--soft", "--good", "--bad", "--open", "--link", "--page", "--card")
    colours = {
        name: tab.evaluate("n => getComputedStyle(document.documentElement).getPropertyValue(n)", name)
        for name in names
    }

    def luminance(text):
        parts = [int(text.strip()[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    for name in names[:-2]:
        for ground in names[-2:]:
            low, high = sorted((luminance(colours[name]), luminance(colours[ground])))
            assert (high + 0.05) / (low + 0.05) >= 4.5, (name, ground)


def test_a_phone_has_no_sideways_scroll(visit, html):
    tab = visit(html, viewport=PHONE, device_scale_factor=3, is_mobile=True, has_touch=True)
    assert overflow(tab) == 0
    for node in tab.locator("details:not([open]) > summary").all():
        if node.is_visible():
            node.click()
    assert overflow(tab) == 0
    # The names that stand beside the lines on a wide screen stand below the plot here.
    assert "dfa-rms" in tab.locator("#plot-scale-legend").inner_text()


def test_a_window_that_changes_redraws(visit, html):
    tab = visit(html)
    tab.set_viewport_size(PHONE)
    for _ in range(100):
        width = tab.evaluate("document.querySelector('#plot-scale canvas')?.clientWidth")
        if width and width < PHONE["width"]:
            break
        tab.wait_for_timeout(50)
    assert 0 < width < PHONE["width"]
    assert overflow(tab) == 0


def test_paper(visit, html, tmp_path):
    tab = visit(html, color_scheme="dark")
    tab.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert tab.evaluate("document.documentElement.dataset.theme") == "light"
    assert tab.locator("main details:not([open])").count() == 0
    tab.emulate_media(media="print")
    assert not tab.locator("#plot-scale-bar").is_visible()
    assert tab.locator("#plot-scale").is_visible()
    tab.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert tab.evaluate("document.documentElement.dataset.theme") == "dark"
    tab.emulate_media(media="screen")
    assert tab.pdf(format="A4").startswith(b"%PDF")


def test_without_scripts_the_numbers_stand(visit, html, page):
    tab = visit(html, java_script_enabled=False)
    assert "The plots need JavaScript" in tab.locator("noscript").inner_text()
    assert "walked back" in tab.locator("#verdict").inner_text()


@pytest.fixture(scope="module")
def two(logs, tmp_path_factory):
    """A page of two experiments: bp and dfa-rms over five epochs, dfa over three."""
    from protocol import cases

    out = tmp_path_factory.mktemp("two") / "report.html"
    return write_report([*logs, *cases.healthy("dfa", epochs=3)], out, title="What credit reaches")


def test_a_click_on_a_sign_opens_its_evidence(visit, html, page):
    tab = visit(html)
    sign = tab.locator(".matrix a", has_text="✕").first
    assert sign.get_attribute("aria-label") == "dfa-rms, scale: fires"
    sign.click()
    said = tab.locator("#evidence")
    row = next(
        row for row in page.table("method", "outcome", "seeds", "value", "threshold") if row["method"] == "dfa-rms"
    )
    for part in ("dfa-rms: ", "✕ fires", row["value"], row["threshold"], row["fires since"], "growth"):
        assert part in said.inner_text()
    tab.keyboard.press("Escape")
    assert not said.is_visible()
    tab.locator(".chips a", has_text="depth").first.click()
    tab.click("#evidence-plot")
    assert not said.is_visible()
    assert tab.url.split("#")[1].startswith("check-depth")


@pytest.mark.parametrize("width", [1366, 1440, 1920])
def test_the_verdicts_are_never_clipped(visit, html, width):
    tab = visit(html, viewport={"width": width, "height": 900})
    for part in (".matrix tbody td.verdict .tone", ".matrix td.sign:last-child a", "#usual td:last-child .tone"):
        for node in tab.locator(part).all():
            box, room = node.bounding_box(), node.locator("xpath=ancestor::div[1]").bounding_box()
            assert box["x"] >= room["x"]
            assert box["x"] + box["width"] <= room["x"] + room["width"]


def test_the_verdict_column_stays_while_a_narrow_window_scrolls_to_the_checks(visit, html):
    tab = visit(html, viewport={"width": 720, "height": 900})
    verdict = tab.locator(".matrix tbody td.verdict").first
    before = verdict.bounding_box()["x"]
    tab.evaluate("document.querySelector('.matrix').scrollLeft = 300")
    assert tab.evaluate("document.querySelector('.matrix').scrollLeft") > 0
    assert verdict.bounding_box()["x"] <= before
    assert verdict.bounding_box()["x"] >= tab.locator(".matrix").bounding_box()["x"]


def test_one_choice_for_cards_tables_and_plots(visit, two):
    tab = visit(two)

    def seen():
        cards = [node.inner_text() for node in tab.locator(".card h3").all() if node.is_visible()]
        rows = [node.inner_text() for node in tab.locator(".matrix tbody tr[data-cell] th").all() if node.is_visible()]
        usual = [node.inner_text() for node in tab.locator("#usual tbody th").all() if node.is_visible()]
        return cards, rows, usual

    assert seen() == (
        ["bp", "dfa-rms", "dfa"],
        ["bp (A)", "dfa-rms (A)", "dfa (B)"],
        ["bp (A)", "dfa-rms (A)", "dfa (B)"],
    )
    tab.select_option("#choose [data-key=group]", "1")
    assert seen() == (["dfa"], ["dfa (B)"], ["dfa (B)"])
    assert "Experiment B: " in tab.locator("#plot-scale-which").inner_text()
    tab.select_option("#choose [data-key=group]", "all")
    tab.click("#choose summary")
    tab.locator("#choose [data-key='verdict:trustworthy']").uncheck()
    assert seen() == (["dfa-rms"], ["dfa-rms (A)"], ["dfa-rms (A)"])
    assert series(tab, "plot-scale") == 3
    assert tab.locator("#choose .count").inner_text() == "1 of 3 claims shown"


def test_the_address_brings_the_view_back(visit, two):
    tab = visit(two)
    tab.click("#choose summary")
    tab.locator("#choose [data-key='seed:123']").uncheck()
    tab.select_option("#plot-direction-bar [data-key=quantity]", "rho")
    tab.locator("#plot-scale-bar [data-key=log]").uncheck()
    tab.locator("#heat-bar input").focus()
    tab.keyboard.press("Home")
    tab.wait_for_timeout(300)
    view = "#" + tab.url.split("#")[1]
    again = visit(two, view=view)
    assert series(again, "plot-scale") == series(tab, "plot-scale") == 4
    assert again.locator("#plot-scale").get_attribute("data-log") == "false"
    assert first(again, "plot-direction") == first(tab, "plot-direction")
    assert again.locator("#heat-bar").inner_text().startswith("epoch 0")
    assert "?" not in visit(two).url


def test_a_link_to_a_sign_opens_its_evidence(visit, html):
    tab = visit(html, view="#ev-1-scale")
    assert "dfa-rms: " in tab.locator("#evidence-title").inner_text()


def test_zoom_keeps_its_ticks_and_is_undone(visit, html):
    tab = visit(html, viewport={"width": 1280, "height": 1000})
    plot = tab.locator("#plot-scale .u-over")
    plot.scroll_into_view_if_needed()
    reset = tab.locator("#plot-scale-bar [data-key=reset]")
    assert not reset.is_visible()
    box = plot.bounding_box()
    tab.mouse.move(box["x"] + 0.3 * box["width"], box["y"] + 0.4 * box["height"])
    tab.mouse.down()
    tab.mouse.move(box["x"] + 0.7 * box["width"], box["y"] + 0.5 * box["height"], steps=4)
    tab.mouse.up()
    tab.mouse.move(0, 0)
    assert reset.is_visible()
    # The numbers beside the axis are painted left of the plot: ink there says that ticks are left.
    painted = tab.evaluate(
        """() => { const canvas = document.querySelector('#plot-scale canvas'), ratio = devicePixelRatio;
          const tall = canvas.height - 80 * ratio, context = canvas.getContext('2d');
          const pixels = context.getImageData(24 * ratio, 20 * ratio, 34 * ratio, tall).data;
          let inked = 0; for (let i = 3; i < pixels.length; i += 4) if (pixels[i] > 120) inked++; return inked; }"""
    )
    assert painted > 40
    reset.click()
    assert not reset.is_visible()
    assert ink(tab, "plot-scale")[0] > 1000


def test_seeds_are_named(visit, html):
    tab = visit(html)
    over = tab.locator("#plot-accuracy .u-over")
    over.scroll_into_view_if_needed()
    box = over.bounding_box()
    tab.mouse.move(box["x"] + box["width"] - 2, box["y"] + box["height"] / 2)
    text = tab.locator("#plot-accuracy .tip").inner_text()
    assert all(f"seed {seed}" in text for seed in (42, 123, 456))


def test_a_plot_is_taken_away_as_csv_and_png(visit, html, page):
    tab = visit(html)
    with tab.expect_download() as saved:
        tab.click("#plot-accuracy-bar [data-key=csv]")
    assert saved.value.suggested_filename == "plot-accuracy-accuracy.csv"
    head, *rows = csv.reader(saved.value.path().read_text().splitlines())
    assert head == ["experiment", "method", "verdict", "seed", "log", "state", "epoch", "accuracy"]
    found = {(row[4], int(row[6])): float(row[7]) for row in rows}
    drawn = [run for run in page.data["runs"] if page.data["cells"][run["cell"]]["claim"]]
    assert found == {
        (run["log"], epoch): value
        for run in drawn
        for epoch, value in zip(run["epochs"], run["values"]["accuracy"][0], strict=True)
    }
    with tab.expect_download() as saved:
        tab.click("#plot-accuracy-bar [data-key=png]")
    assert saved.value.path().read_bytes().startswith(b"\x89PNG")


def test_a_table_is_sorted_by_a_click(visit, html):
    tab = visit(html)
    column = tab.locator("#check-scale thead th", has_text="value")

    def values():
        cells = tab.locator("#check-scale .scroll >> nth=0 >> td:nth-child(4)")
        return [float(text.rstrip("×")) for text in cells.all_inner_texts()]

    column.locator("button").click()
    assert column.get_attribute("aria-sort") == "ascending"
    assert values() == sorted(values())
    column.locator("button").click()
    assert column.get_attribute("aria-sort") == "descending"
    assert values() == sorted(values(), reverse=True)


def test_heatmaps_give_the_means_over_seeds_at_the_epoch_of_the_slider(visit, html, page):
    tab = visit(html)
    assert page.data["heatmaps"] == ["cosine", "gain", "growth"]
    assert tab.locator("#heat canvas:not(.scale)").count() == 2 * 3
    tab.locator("#heat-bar input").focus()
    tab.keyboard.press("Home")
    tab.keyboard.press("ArrowRight")
    runs = [run for run in page.data["runs"] if run["log"].startswith("dfa-rms-s")]
    growth = [math.prod(run["values"]["growth"][block][1] for run in runs) ** (1 / 3) for block in range(4)]
    said = tab.locator("#heat .values").last.inner_text()
    assert said.startswith("epoch 1: ")
    shown = [float(part.split()[-1]) for part in said.removeprefix("epoch 1: ").split(" · ")]
    assert shown == pytest.approx(growth, rel=1e-3)


def test_every_experiment_is_on_paper_under_its_name(visit, two):
    tab = visit(two)
    tab.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    for plot in ("plot-scale", "plot-accuracy"):
        names = (
            tab.locator(f"figure:has(#{plot}), figure:has(#{plot}) + .print-copy").locator(".which").all_inner_texts()
        )
        assert [name[:13] for name in names] == ["Experiment A:", "Experiment B:"]
        painted = tab.evaluate(
            """id => { const canvas = document.querySelector(`figure:has(#${id}) + .print-copy canvas`);
              const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
              return [...pixels].filter(Boolean).length; }""",
            plot,
        )
        assert painted > 1000
    tab.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert tab.locator(".print-copy").count() == 0


def test_a_title_of_ones_own(visit, two):
    tab = visit(two)
    assert tab.title() == "What credit reaches – creditscope report"
    assert tab.locator("h1").inner_text() == "What credit reaches"
    assert "3 claims judged" in tab.locator("#verdict").inner_text()


def test_another_experiment_is_chosen(visit, two):
    tab = visit(two)
    assert len(Page(two.read_text(encoding="utf-8")).data["groups"]) == 2
    tab.select_option("#choose [data-key=group]", "1")
    assert series(tab, "plot-scale") == 3
    assert len(first(tab, "plot-scale")) == 4
    # A quantity that this experiment lacks is said to be missing, not drawn empty.
    tab.select_option("#plot-direction-bar [data-key=quantity]", "rho")
    assert "Not measured in these runs." in tab.locator("#plot-direction").inner_text()
