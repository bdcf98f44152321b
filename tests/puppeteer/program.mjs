// A program as users have it: Puppeteer, connected to a browser at a URL.
import puppeteer from "puppeteer-core";

const browser = await puppeteer.connect({ browserWSEndpoint: process.argv[2], defaultViewport: null });
const page = await browser.newPage();
await page.goto("http://localhost:8000/");
await page.type("input[name=name]", "Ada");
await Promise.all([page.waitForNavigation(), page.click("button")]);
console.log(await page.$eval("p", (element) => element.textContent));
await browser.disconnect();
